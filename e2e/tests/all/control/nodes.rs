//! Nodes: initialised from their machines, removed with them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cloud::text;
use e2e::cluster::{UNINITIALIZED, addresses, has_taint, labels};
use e2e::runner::Layer;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

e2e::scenarios![Layer::Control;
    a_tainted_node_gets_provider_id_addresses_and_labels_and_loses_the_taint,
    a_node_whose_machine_is_unknown_stays_tainted,
    a_node_with_another_clouds_provider_id_is_left_alone,
    a_node_goes_when_its_machine_is_destroyed,
    a_node_that_is_not_ready_is_kept_while_its_machine_exists,
    a_stopped_machine_is_tainted_until_it_runs_again,
];

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A name no machine had before: destroyed machines keep theirs for a day.
pub(crate) fn fresh_name(stem: &str) -> String {
    format!("{stem}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
}

async fn a_tainted_node_gets_provider_id_addresses_and_labels_and_loses_the_taint(
    world: &World,
) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let node = world.cluster.initialised("node-2", SOON).await?;
    let machine = world.cloud.machine("node-2").await?;
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    let expected = format!("external-cloudstack://{}", text(&machine, "id"));
    ensure!(provider.as_deref() == Some(&expected), "provider id {provider:?}");
    let inside = ("InternalIP".to_owned(), text(&machine["nic"][0], "ipaddress"));
    let named = ("Hostname".to_owned(), "node-2".to_owned());
    let found = addresses(&node);
    ensure!(
        found.contains(&inside) && found.contains(&named),
        "addresses {found:?}"
    );
    let offering: String = text(&machine, "serviceofferingname").split(' ').collect();
    let zone = text(&machine, "zonename");
    let labels = labels(&node);
    for (label, value) in [
        ("node.kubernetes.io/instance-type", &offering),
        ("beta.kubernetes.io/instance-type", &offering),
        ("topology.kubernetes.io/zone", &zone),
        ("failure-domain.beta.kubernetes.io/zone", &zone),
        ("topology.kubernetes.io/region", &zone),
        ("failure-domain.beta.kubernetes.io/region", &zone),
    ] {
        ensure!(
            labels.get(label) == Some(value),
            "label {label}: {:?}",
            labels.get(label)
        );
    }
    Ok(())
}

async fn a_node_whose_machine_is_unknown_stays_tainted(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.cluster.register("nobodys-machine").await?;
    world.nodes().await?;
    wait::stays(Duration::from_secs(3), "the unknown node is tainted", || async {
        let node = world
            .cluster
            .node("nobodys-machine")
            .await?
            .context("it was deleted")?;
        Ok(has_taint(&node, UNINITIALIZED))
    })
    .await
}

async fn a_node_with_another_clouds_provider_id_is_left_alone(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    let foreign = json!({"spec": {"providerID": "aws:///eu-central-1a/i-0123456789", "taints": []}});
    world.cluster.register_with("elsewhere", foreign).await?;
    world.nodes().await?;
    world.cluster.set_ready("elsewhere", false).await?;
    let before = world.cluster.node("elsewhere").await?.context("registered")?;
    wait::stays(
        Duration::from_secs(6),
        "the foreign node is as it was",
        || async {
            let node = world.cluster.node("elsewhere").await?.context("it was deleted")?;
            Ok(node.metadata.resource_version == before.metadata.resource_version)
        },
    )
    .await
}

async fn a_node_goes_when_its_machine_is_destroyed(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let name = fresh_name("worker");
    let machine = world.cloud.add_machine(&name).await?;
    world.cluster.register(&name).await?;
    world.cluster.initialised(&name, SOON).await?;
    world.cloud.destroy_machine(&machine).await?;
    world.cluster.set_ready(&name, false).await?;
    wait::until_holds(SOON, format!("node {name} is gone"), || async {
        Ok(world
            .cluster
            .node(&name)
            .await?
            .map(|node| format!("{:?}", node.spec)))
    })
    .await?;
    for kept in e2e::cloud::MACHINES {
        ensure!(
            world.cluster.node(kept).await?.is_some(),
            "{kept} was deleted as well"
        );
    }
    Ok(())
}

async fn a_node_that_is_not_ready_is_kept_while_its_machine_exists(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    world.cluster.set_ready("node-3", false).await?;
    wait::stays(Duration::from_secs(8), "node-3 is there", || async {
        Ok(world.cluster.node("node-3").await?.is_some())
    })
    .await
}

async fn a_stopped_machine_is_tainted_until_it_runs_again(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    let name = fresh_name("worker");
    let machine = world.cloud.add_machine(&name).await?;
    world.nodes().await?;
    world.cluster.register(&name).await?;
    world.cluster.initialised(&name, SOON).await?;
    world.cloud.stop_machine(&machine).await?;
    world.cluster.set_ready(&name, false).await?;
    wait::until(SOON, "the stopped machine's node is tainted", || async {
        let node = world.cluster.node(&name).await?.context("it was deleted")?;
        Ok(has_taint(&node, SHUTDOWN).then_some(()))
    })
    .await?;
    world.cloud.start_machine(&machine).await?;
    world.cluster.set_ready(&name, true).await?;
    wait::until(SOON, "the started machine's node has lost the taint", || async {
        let node = world.cluster.node(&name).await?.context("it was deleted")?;
        Ok((!has_taint(&node, SHUTDOWN)).then_some(()))
    })
    .await?;
    world.cloud.destroy_machine(&machine).await
}
