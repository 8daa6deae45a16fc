//! The process: configuration, identity, reload, faults of the set-up, and that nothing secret gets out.

use std::time::Duration;

use cloudstack_simulator::{Effect, Fault as Script, Seed};
use proto::FaultKind;
use proto::v1::cloud_broker_client::CloudBrokerClient;
use proto::v1::finding::Severity;
use proto::v1::{ListLoadBalancersRequest, unknown_reason};
use runtime::host::Host;
use runtime::link::{Link, LinkAddress};
use runtime::tls::{ClientFiles, ClientTls};

use super::client_support::until;
use super::server_pki::Pki;
use super::server_support::{Agent, Running, args, config, named, seed, simulator};

const APPLIED: &str = "cloud_broker_config_reloads_total{outcome=\"applied\"}";
const REFUSED: &str = "cloud_broker_config_reloads_total{outcome=\"refused\"}";

/// Waits until a finding is there.
async fn finding(agent: &Agent, severity: Severity, reason: &str) -> String {
    finding_about(agent, severity, reason, "").await
}

/// Waits until a finding is there whose text has these words.
async fn finding_about(agent: &Agent, severity: Severity, reason: &str, words: &str) -> String {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let wait = async {
        loop {
            ticks.tick().await;
            let findings = agent.describe().await.unwrap().findings;
            let found = findings
                .into_iter()
                .find(|finding| finding.reason == reason && finding.severity() == severity);
            if let Some(found) = found {
                return format!("{}: {}", found.object, found.text);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("no finding {reason} {words}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_on_the_socket_learns_who_it_is_and_what_it_may_do() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let agent = broker.agent();
    let described = agent.describe().await.unwrap();
    assert_eq!(
        (described.cluster.as_str(), described.cluster_uid.as_str()),
        ("default", "cluster-1")
    );
    assert!(described.identity.starts_with("unix:uid="));
    assert_eq!((described.contract_min, described.contract_max), (1, 1));
    let policy = described.policy.unwrap();
    assert_eq!((policy.member_port_first, policy.member_port_last), (1, 65535));
    assert!(described.limits.unwrap().max_wait.is_some());
    assert!(described.server_time.is_some() && described.drift_period.is_some());
    until(|| cloud.calls().of_command("listNetworks") > 0).await;
    let settled = async {
        while agent.describe().await.unwrap().networks.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled)
        .await
        .unwrap();
    let described = agent.describe().await.unwrap();
    assert!(
        described
            .networks
            .iter()
            .any(|network| network.name == "k8s" && network.offers_load_balancer)
    );
    assert!(described.data_age.is_some());
    assert!(!described.cloud_version.is_empty());
    assert!(
        described
            .rights
            .iter()
            .any(|right| right.command == "listVirtualMachines" && right.allowed)
    );
    let none = agent.saying("").describe().await.unwrap();
    assert_eq!(none.cluster_uid, "");
    assert!(
        none.findings
            .iter()
            .any(|finding| finding.reason == "CLUSTER_UID_MISSING")
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_are_told_and_heal_without_a_restart() {
    let cloud = simulator(seed()).await;
    let good = config(&cloud, "demo", "");
    let secret = &cloud.keys("demo").unwrap().secret_key;
    let broker = Running::start(&good.replace(secret.as_str(), "wrong")).await;
    let agent = broker.agent();
    let text = finding(&agent, Severity::Error, "KEYS_REFUSED").await;
    assert!(text.contains(cloud.url()) && text.contains("api-key"), "{text}");
    let unknown = agent.look_up(vec![named("node-1")]).await.unwrap().remove(0);
    let Some(proto::v1::instance_result::Presence::Unknown(unknown)) = unknown.presence else {
        panic!("known")
    };
    assert_eq!(unknown.why(), unknown_reason::Why::CloudUnreachable);
    broker.write("cloud.conf", &good);
    until(|| broker.metric(APPLIED) == Some(1.0)).await;
    let found = agent.look_up(vec![named("node-1")]).await.unwrap().remove(0);
    assert!(matches!(
        found.presence,
        Some(proto::v1::instance_result::Presence::Found(_))
    ));
    assert!(agent.findings(Severity::Error).await.is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_away_or_elsewhere_is_told_with_a_remedy_and_the_process_lives() {
    let cloud = simulator(seed()).await;
    let good = config(&cloud, "demo", "");
    for (broken, remedy) in [
        (
            good.replace(cloud.url(), "http://127.0.0.1:9/client/api"),
            "check api-url, the network in between",
        ),
        (
            good.replace("/client/api", "/elsewhere"),
            "it ends in /client/api",
        ),
        (
            good.replace(cloud.url(), "http://no-such-host.invalid/client/api"),
            "check the host name in api-url",
        ),
    ] {
        let broker = Running::start(&broken).await;
        finding_about(&broker.agent(), Severity::Error, "API_UNREACHABLE", remedy).await;
        assert!(
            broker.host.health().alive(false, &[]).ok,
            "liveness never depends on the cloud"
        );
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_change_keeps_the_old_configuration_and_says_so() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "region = one")).await;
    let agent = broker.agent();
    let region = async || match agent
        .look_up(vec![named("node-1")])
        .await
        .unwrap()
        .remove(0)
        .presence
    {
        Some(proto::v1::instance_result::Presence::Found(machine)) => machine.region,
        other => panic!("not found but {other:?}"),
    };
    assert_eq!(region().await, "one");
    broker.write(
        "cloud.conf",
        &config(&cloud, "demo", "region = two\ncolour = red"),
    );
    until(|| broker.metric(REFUSED) == Some(1.0)).await;
    assert_eq!(broker.metric("cloud_broker_config_good"), Some(0.0));
    assert_eq!(region().await, "one");
    broker.write("cloud.conf", &config(&cloud, "demo", "region = two"));
    until(|| broker.metric(APPLIED) == Some(1.0)).await;
    assert_eq!(broker.metric("cloud_broker_config_good"), Some(1.0));
    assert_eq!(region().await, "two");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_files_are_rotated_without_losing_a_call() {
    let seed = Seed::builder()
        .account("demo")
        .account("second")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .build();
    let cloud = simulator(seed).await;
    let (first, second) = (cloud.keys("demo").unwrap(), cloud.keys("second").unwrap());
    let text = format!(
        "[Global]\napi-url = {}\napi-key-file = key\nsecret-key-file = secret\nvm-cache-ttl = 0\n",
        cloud.url()
    );
    let broker =
        Running::start_with_files(&text, &[("key", &first.api_key), ("secret", &first.secret_key)]).await;
    let agent = broker.agent();
    agent.look_up(vec![named("node-1")]).await.unwrap();
    let asking = async {
        let mut answers = 0;
        while broker.metric(APPLIED) != Some(1.0) {
            agent.look_up(vec![named("node-1")]).await.unwrap();
            answers += 1;
        }
        answers
    };
    broker.write("secret", &second.secret_key);
    broker.write("key", &second.api_key);
    assert!(
        tokio::time::timeout(Duration::from_secs(20), asking)
            .await
            .unwrap()
            > 0
    );
    let now = agent.look_up(vec![named("node-1")]).await.unwrap().remove(0);
    assert!(
        !matches!(now.presence, Some(proto::v1::instance_result::Presence::Found(_))),
        "the new keys see other machines"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_is_not_visible_is_told() {
    let seed = Seed::builder()
        .account("demo")
        .account("other")
        .project("shared", &["other"])
        .build();
    let cloud = simulator(seed).await;
    let project = "3805e7e9-41d8-462e-88eb-44f01eff3d4f";
    let broker = Running::start(&config(
        &cloud,
        "demo",
        &format!("project-id = {project}\nzone = nowhere"),
    ))
    .await;
    let agent = broker.agent();
    let findings = async {
        loop {
            let errors = agent.findings(Severity::Error).await;
            if !errors.is_empty() {
                return errors;
            }
            tokio::task::yield_now().await;
        }
    };
    let errors = tokio::time::timeout(Duration::from_secs(20), findings)
        .await
        .unwrap();
    assert!(
        errors
            .iter()
            .any(|reason| reason == "PROJECT_NOT_VISIBLE" || reason == "API_REFUSES"),
        "{errors:?}"
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_zones_and_machines_are_told() {
    let seed = Seed::builder()
        .account_with_role("demo", "User")
        .network_seed(cloudstack_simulator::NetworkSeed::shared(
            "flat",
            "127.101.0.0/24",
        ))
        .machine(cloudstack_simulator::MachineSeed::new("node-1", "flat", None).account("demo"))
        .build();
    let cloud = simulator(seed).await;
    cloud.add_fault(Script::always(
        "listZones",
        Effect::error(432, "The API [listZones] does not exist or is not available"),
    ));
    let broker = Running::start(&config(
        &cloud,
        "demo",
        "zone = zone1\n[Cluster \"default\"]\nnetworks = flat, lost",
    ))
    .await;
    let agent = broker.agent();
    let text = finding(&agent, Severity::Warning, "NETWORK_WITHOUT_LOAD_BALANCER").await;
    assert!(text.starts_with("network flat"), "{text}");
    let text = finding(&agent, Severity::Error, "NETWORK_NOT_VISIBLE").await;
    assert!(text.starts_with("network lost"), "{text}");
    finding_about(&agent, Severity::Info, "RIGHT_MISSING", "listZones").await;
    broker.write(
        "cloud.conf",
        &config(&cloud, "demo", "[Cluster \"default\"]\nmachines = other-*"),
    );
    finding(&agent, Severity::Warning, "NO_MACHINES").await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one story")]
async fn a_certificate_decides_which_cluster_is_served_and_a_removed_one_loses_its_connection() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "a", "127.101.0.0/24")
        .machines("a", "a-", 1)
        .network("demo", "b", "127.101.1.0/24")
        .machines("b", "b-", 1)
        .build();
    let cloud = simulator(seed).await;
    let section = |name: &str| {
        format!("[Cluster \"{name}\"]\nuid = {name}\nnetworks = {name}\nidentity = spiffe://{name}/agent\n")
    };
    let both = config(&cloud, "demo", &format!("{}{}", section("a"), section("b")));
    let pki = Pki::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let listen = format!("https://127.0.0.1:{port}");
    let (server, key, ca) = (pki.server(), pki.path("server.key"), pki.path("ca.pem"));
    let tls = [
        "--tls-cert-file",
        &server,
        "--tls-private-key-file",
        &key,
        "--client-ca-file",
        &ca,
    ];
    let flags: Vec<&str> = ["--listen", &listen, "--listen", "unix://{}/run/broker.sock"]
        .into_iter()
        .chain(tls)
        .collect();
    let broker = Running::start_with(&both, &flags).await;
    let address: LinkAddress = listen.parse().unwrap();
    let agent = |name: &str| {
        let files = ClientFiles {
            ca: pki.path("ca.pem").into(),
            certificate: pki.client(name).into(),
            private_key: pki.path(&format!("{name}.key")).into(),
        };
        let tls = ClientTls::load(files).unwrap();
        Agent::new(Link::connect(&broker.host, vec![address.clone()], Some(tls)).channel()).saying(name)
    };
    let (a, b, stranger) = (agent("a"), agent("b"), agent("c"));
    let described = a.describe().await.unwrap();
    assert_eq!(
        (described.cluster.as_str(), described.identity.as_str()),
        ("a", "spiffe://a/agent")
    );
    assert_eq!(b.describe().await.unwrap().cluster, "b");
    let refused = stranger.describe().await.unwrap_err();
    assert_eq!(
        (refused.kind, refused.reason.as_ref()),
        (FaultKind::Denied, "STRANGER")
    );
    assert_eq!(
        broker.agent().describe().await.unwrap_err().reason,
        "STRANGER",
        "there is no default cluster"
    );
    assert!(matches!(
        a.look_up_one(named("a-1")).await,
        proto::v1::instance_result::Presence::Found(_)
    ));
    assert!(!matches!(
        a.look_up_one(named("b-1")).await,
        proto::v1::instance_result::Presence::Found(_)
    ));
    let forged = b.saying("a").describe().await.unwrap_err();
    assert_eq!(
        (forged.kind, forged.reason.as_ref()),
        (FaultKind::Denied, "OTHER_CLUSTER_UID")
    );
    assert!(!forged.text.contains("cluster a"), "{}", forged.text);
    broker.write("cloud.conf", &config(&cloud, "demo", &section("a")));
    until(|| broker.metric(APPLIED) == Some(1.0)).await;
    assert_eq!(b.describe().await.unwrap_err().reason, "STRANGER");
    assert_eq!(a.describe().await.unwrap().cluster, "a");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_beside_the_contract_and_reflection_only_when_asked_for() {
    let cloud = simulator(seed()).await;
    for reflection in [false, true] {
        let flag = format!("--reflection={reflection}");
        let broker = Running::start_with(&config(&cloud, "demo", ""), &[&flag]).await;
        let channel = Link::connect(&broker.host, vec![LinkAddress::Unix(broker.socket())], None).channel();
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
        let request = tonic_health::pb::HealthCheckRequest {
            service: "cloudstack.broker.v1.CloudBroker".into(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, 1);
        let mut client =
            tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel);
        let asked = tonic_reflection::pb::v1::ServerReflectionRequest::default();
        let answer = client.server_reflection_info(tokio_stream::iter([asked])).await;
        assert_eq!(answer.is_ok(), reflection);
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_configuration_ends_the_start_with_all_its_faults() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("cloud.conf"),
        "[Global]\napi-key = S3cret\ncolour = red\n",
    )
    .unwrap();
    let at = folder.path().display();
    let args = args(&[
        &format!("--cloud-config={at}/cloud.conf"),
        &format!("--listen=unix://{at}/s"),
    ]);
    let text = cloud_broker::run(Host::new(), args)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("cloud.conf:3: unknown key colour"), "{text}");
    assert!(!text.contains("S3cret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_without_certificates_is_refused_with_the_flags_that_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("c"),
        "[Global]\napi-url = http://c/client/api\napi-key = A\nsecret-key = S\n",
    )
    .unwrap();
    let args = args(&[
        &format!("--cloud-config={}/c", folder.path().display()),
        "--listen=https://127.0.0.1:0",
        "--secure-port=0",
    ]);
    let text = cloud_broker::run(Host::new(), args)
        .await
        .unwrap_err()
        .to_string();
    assert!(text.contains("--client-ca-file"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_token_of_somebody_else_is_refused() {
    let cloud = simulator(seed()).await;
    let broker = Running::start(&config(&cloud, "demo", "")).await;
    let channel = Link::connect(&broker.host, vec![LinkAddress::Unix(broker.socket())], None).channel();
    let request = ListLoadBalancersRequest {
        page_token: "x".into(),
        ..Default::default()
    };
    let fault = proto::Fault::from(
        CloudBrokerClient::new(channel)
            .list_load_balancers(request)
            .await
            .unwrap_err(),
    );
    assert_eq!(fault.field.as_deref(), Some("page_token"));
    broker.stop().await;
}
