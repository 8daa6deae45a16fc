//! The ways to deploy it: one pod with a socket (every other scenario), a broker outside the cluster, one broker for
//! several clusters.

use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::cloud::{MACHINES, NETWORK};
use e2e::cluster::Cluster;
use e2e::pki::Authority;
use e2e::product::{Agent, Broker, Joint, Mutual, cluster_section};
use e2e::rbac;
use e2e::runner::Layer;
use e2e::service::{Handle, Wanted};
use e2e::world::{QUICK_BROKER, SOON, World};

use crate::expect;

e2e::scenarios![Layer::Control;
    a_broker_outside_the_cluster_serves_it_over_mutual_tls,
    one_broker_serves_two_clusters_and_keeps_them_apart,
    an_agent_whose_certificate_names_no_cluster_is_served_nothing,
];

const BLUE: &str = "spiffe://example.org/cluster/blue";
const GREEN: &str = "spiffe://example.org/cluster/green";

/// A broker on the network with these sections.
fn broker(world: &World, authority: &Authority, sections: &str) -> Result<Broker> {
    let config = world.config_with("broker-config", &format!("{QUICK_BROKER}{sections}"))?;
    let joint = Joint::Network(Mutual::new(authority)?);
    Ok(Broker {
        name: "cloud-broker".into(),
        config,
        joint,
        more: Vec::new(),
    })
}

async fn a_broker_outside_the_cluster_serves_it_over_mutual_tls(world: &World) -> Result<()> {
    let authority = Authority::found(&world.subdir("pki"), "outside")?;
    let plan = broker(
        world,
        &authority,
        &cluster_section("blue", BLUE, &[("networks", NETWORK)]),
    )?;
    let agent = world
        .agent_plan(&plan.joint, Some(authority.client("blue", BLUE)?))
        .await?;
    let _pair = world.pair_of(plan, agent).await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let (_, found) = expect::served(world, &service, &MACHINES).await?;
    expect::marked(&found, &service)?;
    service.delete(SOON).await
}

async fn one_broker_serves_two_clusters_and_keeps_them_apart(world: &World) -> Result<()> {
    let authority = Authority::found(&world.subdir("pki"), "outside")?;
    let green = Cluster::start(&world.subdir("green")).await?;
    let uids = (world.cluster.uid().await?, green.uid().await?);
    let fence = |machines, uid| [("networks", NETWORK), ("machines", machines), ("uid", uid)];
    let sections = [
        cluster_section("blue", BLUE, &fence("node-*", uids.0.as_str())),
        cluster_section("green", GREEN, &fence("K8S-*", uids.1.as_str())),
    ];
    let plan = broker(world, &authority, &sections.concat())?;
    let account = rbac::apply(&green).await?;
    let kubeconfig = account
        .kubeconfig(&green, &green.plane.url, &world.subdir("green.kubeconfig"))
        .await?;
    let agent = world
        .agent_plan(&plan.joint, Some(authority.client("blue", BLUE)?))
        .await?;
    let other = Agent {
        name: "k8s-agent-green".into(),
        kubeconfig,
        identity: Some(authority.client("green", GREEN)?),
        ..agent.clone()
    };
    let _pair = world.pair_of(plan, agent).await?;
    let _other = world.start_agent(&other).await?;
    for name in ["node-1", "node-2"] {
        world.cluster.register(name).await?;
        world.cluster.initialised(name, SOON).await?;
    }
    green.register("k8s-worker-1").await?;
    green.initialised("k8s-worker-1", SOON).await?;
    // A machine outside a cluster's scope is nobody there, whatever the Node is called.
    green.register("node-1").await?;
    let blue_service = world.service(Wanted::new("web").port(80)).await?;
    let (blue_ip, _) = expect::served(world, &blue_service, &["node-1", "node-2"]).await?;
    let green = Arc::new(green);
    green.namespace("apps").await?;
    let green_service = Handle::create(&green, "apps", Wanted::new("web").port(80)).await?;
    let (green_ip, found) = expect::served(world, &green_service, &["K8S-Worker-1"]).await?;
    ensure!(blue_ip != green_ip, "two clusters share {blue_ip}");
    for (ip, uid) in [(&blue_ip, &uids.0), (&green_ip, &uids.1)] {
        let mark = &found.rules_on(ip)["80"].description;
        ensure!(mark.contains(uid), "the mark on {ip} is {mark}, without {uid}");
    }
    let stray = green.node("node-1").await?;
    ensure!(
        stray.is_some_and(|node| e2e::cluster::has_taint(&node, e2e::cluster::UNINITIALIZED)),
        "green's node-1"
    );
    green_service.delete(SOON).await?;
    expect::served(world, &blue_service, &["node-1", "node-2"]).await?;
    blue_service.delete(SOON).await
}

async fn an_agent_whose_certificate_names_no_cluster_is_served_nothing(world: &World) -> Result<()> {
    let authority = Authority::found(&world.subdir("pki"), "outside")?;
    let plan = broker(
        world,
        &authority,
        &cluster_section("blue", BLUE, &[("networks", NETWORK)]),
    )?;
    let stranger = authority.client("stranger", "spiffe://example.org/cluster/unknown")?;
    let agent = world.agent_plan(&plan.joint, Some(stranger)).await?;
    let _pair = world.pair_of(plan, agent).await?;
    world.cluster.register("node-1").await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    e2e::wait::stays(
        std::time::Duration::from_secs(5),
        "the stranger gets nothing",
        || async {
            let node = world.cluster.node("node-1").await?;
            let tainted =
                node.is_some_and(|node| e2e::cluster::has_taint(&node, e2e::cluster::UNINITIALIZED));
            Ok(tainted && service.ingress().await?.is_empty())
        },
    )
    .await?;
    world.nothing_left().await
}
