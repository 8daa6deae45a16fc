//! What packets do: through the simulator's router, which is a real HAProxy on loopback addresses.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use e2e::cloud::{MACHINES, text};
use e2e::cluster::ANNOTATION;
use e2e::runner::Layer;
use e2e::service::{Handle, Wanted};
use e2e::traffic::{self, Backend};
use e2e::wait;
use e2e::world::{SOON, World};
use kube::api::DeleteParams;
use serde_json::json;

use crate::expect;

e2e::scenarios![Layer::Data;
    requests_reach_a_backend_on_every_node_and_none_after_the_end,
    the_clients_address_arrives_in_the_proxy_header,
    a_source_outside_the_ranges_is_kept_out,
    traffic_follows_the_nodes,
    no_request_is_lost_while_ports_and_members_change,
];

/// Backends on the node port of a Service's first port, one per machine.
async fn backends(world: &World, service: &Handle<'_>, names: &[&str]) -> Result<Vec<Backend>> {
    let ports = expect::node_ports(&service.get().await?);
    let port: u16 = ports.first().context("a Service without ports")?.1.parse()?;
    let mut started = Vec::new();
    for name in names {
        let ip: IpAddr = text(&world.cloud.machine(name).await?["nic"][0], "ipaddress").parse()?;
        started.push(Backend::listen(name, SocketAddr::new(ip, port)).await?);
    }
    Ok(started)
}

/// A served Service with a backend on each of three nodes, and where it answers.
async fn served(world: &World, wanted: Wanted, port: u16) -> Result<(Handle<'_>, SocketAddr, Vec<Backend>)> {
    world.nodes().await?;
    let service = world.service(wanted).await?;
    let backends = backends(world, &service, &MACHINES).await?;
    let (ip, _) = expect::served(world, &service, &MACHINES).await?;
    Ok((service, SocketAddr::new(ip.parse()?, port), backends))
}

async fn requests_reach_a_backend_on_every_node_and_none_after_the_end(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    let (service, at, _backends) = served(world, Wanted::new("web").port(8080), 8080).await?;
    traffic::reaches(at, &expect::members(&MACHINES), SOON).await?;
    ensure!(
        traffic::request(at, None).await?.proxy.is_none(),
        "a PROXY header nobody asked for"
    );
    service.delete(SOON).await?;
    traffic::closed(at, None, SOON).await
}

async fn the_clients_address_arrives_in_the_proxy_header(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    let wanted = Wanted::new("web")
        .port(8080)
        .annotation(&format!("{ANNOTATION}proxy-protocol"), "true");
    let (service, at, _backends) = served(world, wanted, 8080).await?;
    traffic::reaches(at, &expect::members(&MACHINES), SOON).await?;
    let from: IpAddr = "127.0.0.77".parse()?;
    let seen = traffic::request(at, Some(from)).await?;
    ensure!(seen.client() == Some("127.0.0.77"), "the backend saw {seen:?}");
    let off = json!({"metadata": {"annotations": {format!("{ANNOTATION}proxy-protocol"): "false"}}});
    service.patch(off).await?;
    wait::until_holds(SOON, "the PROXY header is gone", || async {
        Ok(traffic::request(at, Some(from)).await?.proxy)
    })
    .await?;
    service.delete(SOON).await
}

async fn a_source_outside_the_ranges_is_kept_out(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    let ranges = |list: &[&str]| json!({"loadBalancerSourceRanges": list});
    let wanted = Wanted::new("web").port(8080).spec(ranges(&["127.0.0.16/28"]));
    let (service, at, _backends) = served(world, wanted, 8080).await?;
    let (inside, outside): (IpAddr, IpAddr) = ("127.0.0.20".parse()?, "127.0.0.40".parse()?);
    let answered = |from: IpAddr| async move {
        wait::until(SOON, format!("{from} is answered"), || async {
            traffic::request(at, Some(from)).await.map(Some)
        })
        .await
    };
    answered(inside).await?;
    traffic::closed(at, Some(outside), SOON).await?;
    service.patch(json!({"spec": ranges(&["127.0.0.32/28"])})).await?;
    answered(outside).await?;
    traffic::closed(at, Some(inside), SOON).await?;
    service.delete(SOON).await
}

async fn traffic_follows_the_nodes(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    for name in ["node-1", "node-2"] {
        world.cluster.register(name).await?;
        world.cluster.initialised(name, SOON).await?;
    }
    let service = world.service(Wanted::new("web").port(8080)).await?;
    let _backends = backends(world, &service, &MACHINES).await?;
    let (ip, _) = expect::served(world, &service, &["node-1", "node-2"]).await?;
    let at = SocketAddr::new(ip.parse()?, 8080);
    traffic::reaches(at, &expect::members(&["node-1", "node-2"]), SOON).await?;
    world.cluster.register("node-3").await?;
    traffic::reaches(at, &expect::members(&MACHINES), SOON).await?;
    world
        .cluster
        .nodes()
        .delete("node-1", &DeleteParams::default())
        .await?;
    traffic::reaches(at, &expect::members(&["node-2", "node-3"]), SOON).await?;
    service.delete(SOON).await
}

async fn no_request_is_lost_while_ports_and_members_change(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    let (service, at, _backends) = served(world, Wanted::new("web").port(8080), 8080).await?;
    traffic::reaches(at, &expect::members(&MACHINES), SOON).await?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let client = wait::spawn(async move {
        let mut answered = 0_usize;
        while !*stopped.borrow() {
            traffic::request(at, None)
                .await
                .with_context(|| format!("after {answered} requests"))?;
            answered += 1;
        }
        Ok::<_, anyhow::Error>(answered)
    });
    service
        .set_ports(Wanted::new("web").port(8080).port(8443))
        .await?;
    expect::served(world, &service, &MACHINES).await?;
    world
        .cluster
        .nodes()
        .delete("node-1", &DeleteParams::default())
        .await?;
    expect::served(world, &service, &["node-2", "node-3"]).await?;
    service.set_ports(Wanted::new("web").port(8080)).await?;
    expect::served(world, &service, &["node-2", "node-3"]).await?;
    stop.send(true)?;
    let answered = client.await??;
    ensure!(answered > 10, "only {answered} requests were made meanwhile");
    service.delete(SOON).await
}
