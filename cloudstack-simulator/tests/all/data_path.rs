//! Bytes through the load balancer, where HAProxy is installed.

use std::net::SocketAddr;
use std::time::Duration;

use cloudstack_simulator::{DataPath, Handle, Keys, Options, Seed, Simulator};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

use crate::client::{call, run};

/// A cloud whose addresses no other test uses. None: there is no HAProxy here.
async fn cloud(third: u8) -> Option<Handle> {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", &format!("127.101.{third}.0/24"))
        .machines("k8s", "node-", 2)
        .public_range(&format!("127.100.{third}.10"), &format!("127.100.{third}.20"))
        .build();
    let keys = Keys::generate(&seed);
    let options = Options {
        data_path: DataPath::Auto,
        ..Options::default()
    };
    let simulator = Simulator::start(seed, keys, options).await.unwrap();
    if !simulator.has_data_path() {
        println!("SKIPPED: no haproxy on the PATH");
        return None;
    }
    Some(simulator)
}

/// A machine's service: says its name and the first line it reads. The port.
async fn backend(address: &str, name: &'static str) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = vec![0; 1024];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                let heard = String::from_utf8_lossy(&bytes[..read]).into_owned();
                let line = heard.lines().next().unwrap_or_default().to_owned();
                let _ = stream
                    .write_all(format!("{name} heard {line}\n").as_bytes())
                    .await;
            });
        }
    });
    port
}

/// What comes back from an address for a client on another one. None: refused, reset, or closed without a word.
async fn ask(to: SocketAddr, from: &str) -> Option<String> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::new(from.parse().ok()?, 0)).ok()?;
    let mut stream = socket.connect(to).await.ok()?;
    stream.write_all(b"hello\n").await.ok()?;
    let mut text = String::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_string(&mut text))
        .await
        .ok()?
        .ok()?;
    (!text.is_empty()).then_some(text)
}

struct Balancer {
    address: String,
    rule: String,
    at: SocketAddr,
}

async fn balancer(simulator: &Handle, port: u16, more: &[(&str, &str)]) -> Balancer {
    let network = call(simulator, "demo", "listNetworks", &[])
        .await
        .unwrap()
        .inner()["network"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let job = run(
        simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", &network)],
    )
    .await;
    let taken = job["jobresult"]["ipaddress"].clone();
    let address = taken["id"].as_str().unwrap().to_owned();
    let private = port.to_string();
    let mut params = vec![
        ("publicipid", address.as_str()),
        ("name", "web"),
        ("publicport", "8090"),
        ("privateport", private.as_str()),
        ("algorithm", "roundrobin"),
        ("openfirewall", "false"),
    ];
    params.extend_from_slice(more);
    let job = run(simulator, "demo", "createLoadBalancerRule", &params).await;
    let rule = job["jobresult"]["loadbalancer"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let nodes = call(simulator, "demo", "listVirtualMachines", &[("name", "node-1")])
        .await
        .unwrap()
        .inner();
    let node = nodes["virtualmachine"][0]["id"].as_str().unwrap().to_owned();
    run(
        simulator,
        "demo",
        "assignToLoadBalancerRule",
        &[("id", &rule), ("virtualmachineids", &node)],
    )
    .await;
    let at = SocketAddr::new(taken["ipaddress"].as_str().unwrap().parse().unwrap(), 8090);
    Balancer { address, rule, at }
}

async fn open(simulator: &Handle, balancer: &Balancer, sources: &str) -> String {
    let params = [
        ("ipaddressid", balancer.address.as_str()),
        ("protocol", "tcp"),
        ("startport", "8090"),
        ("endport", "8090"),
        ("cidrlist", sources),
    ];
    let job = run(simulator, "demo", "createFirewallRule", &params).await;
    job["jobresult"]["firewallrule"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn bytes_reach_a_member_once_the_firewall_is_open_and_no_longer_after_the_release() {
    let Some(simulator) = cloud(21).await else { return };
    let port = backend("127.101.21.11", "one").await;
    let balancer = balancer(&simulator, port, &[("protocol", "tcp")]).await;
    assert_eq!(ask(balancer.at, "127.0.0.1").await, None, "no firewall rule");
    open(&simulator, &balancer, "0.0.0.0/0").await;
    assert_eq!(
        ask(balancer.at, "127.0.0.1").await.as_deref(),
        Some("one heard hello\n")
    );
    run(
        &simulator,
        "demo",
        "disassociateIpAddress",
        &[("id", &balancer.address)],
    )
    .await;
    assert_eq!(ask(balancer.at, "127.0.0.1").await, None, "released");
    simulator.stop().await;
}

#[tokio::test]
async fn tcp_proxy_tells_the_member_the_client_s_address() {
    let Some(simulator) = cloud(22).await else { return };
    let port = backend("127.101.22.11", "one").await;
    let balancer = balancer(&simulator, port, &[("protocol", "tcp-proxy")]).await;
    open(&simulator, &balancer, "0.0.0.0/0").await;
    let heard = ask(balancer.at, "127.0.0.77").await.unwrap();
    assert!(
        heard.starts_with("one heard PROXY TCP4 127.0.0.77 127.100.22."),
        "{heard}"
    );
    run(
        &simulator,
        "demo",
        "updateLoadBalancerRule",
        &[
            ("id", &balancer.rule),
            ("protocol", "tcp"),
            ("algorithm", "roundrobin"),
        ],
    )
    .await;
    assert_eq!(
        ask(balancer.at, "127.0.0.77").await.as_deref(),
        Some("one heard hello\n")
    );
    simulator.stop().await;
}

#[tokio::test]
async fn sources_are_held_by_the_firewall_and_by_the_rule() {
    let Some(simulator) = cloud(23).await else { return };
    let port = backend("127.101.23.11", "one").await;
    let balancer = balancer(
        &simulator,
        port,
        &[("protocol", "tcp"), ("cidrlist", "127.0.0.0/24,127.0.1.0/24")],
    )
    .await;
    let wide = open(&simulator, &balancer, "0.0.0.0/0").await;
    assert!(
        ask(balancer.at, "127.0.1.5").await.is_some(),
        "in the rule's list"
    );
    assert_eq!(
        ask(balancer.at, "127.0.2.5").await,
        None,
        "not in the rule's list"
    );
    open(&simulator, &balancer, "127.0.0.0/16").await;
    run(&simulator, "demo", "deleteFirewallRule", &[("id", &wide)]).await;
    assert!(ask(balancer.at, "127.0.0.5").await.is_some(), "in both");
    run(
        &simulator,
        "demo",
        "updateLoadBalancerRule",
        &[
            ("id", &balancer.rule),
            ("cidrlist", ""),
            ("protocol", "tcp"),
            ("algorithm", "roundrobin"),
        ],
    )
    .await;
    assert!(
        ask(balancer.at, "127.0.2.5").await.is_some(),
        "the rule's list is gone"
    );
    assert_eq!(
        ask(balancer.at, "127.1.0.5").await,
        None,
        "not in the firewall's list"
    );
    simulator.stop().await;
}

#[tokio::test]
async fn nothing_listens_after_the_simulator_stopped() {
    let Some(simulator) = cloud(24).await else { return };
    let port = backend("127.101.24.11", "one").await;
    let balancer = balancer(&simulator, port, &[]).await;
    open(&simulator, &balancer, "0.0.0.0/0").await;
    assert!(ask(balancer.at, "127.0.0.1").await.is_some());
    simulator.stop().await;
    assert_eq!(ask(balancer.at, "127.0.0.1").await, None);
}
