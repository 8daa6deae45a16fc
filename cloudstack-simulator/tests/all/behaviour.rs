//! Worlds from code, and what the recordings do not show.

use cloudstack_simulator::{Handle, Keys, MachineSeed, NetworkSeed, Options, Seed, Simulator};
use rstest::rstest;
use serde_json::{Value, json};

use crate::client::{call, run};

async fn list(simulator: &Handle, caller: &str, command: &str, params: &[(&str, &str)]) -> Value {
    let answer = call(simulator, caller, command, params).await.unwrap();
    assert_eq!(answer.status, 200, "{command}: {}", answer.text);
    answer.inner()
}

async fn id_of(simulator: &Handle, caller: &str, command: &str, key: &str, name: &str) -> String {
    let found = list(simulator, caller, command, &[("name", name)]).await;
    found[key][0]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {found}"))
        .to_owned()
}

fn small() -> Seed {
    Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 2)
        .build()
}

/// Takes an address and makes a rule on it; their ids.
async fn balancer(simulator: &Handle, caller: &str, network: &str) -> (String, String) {
    let job = run(simulator, caller, "associateIpAddress", &[("networkid", network)]).await;
    let address = job["jobresult"]["ipaddress"]["id"].as_str().unwrap().to_owned();
    let params = [
        ("publicipid", address.as_str()),
        ("name", "web"),
        ("publicport", "8080"),
        ("privateport", "30080"),
        ("algorithm", "roundrobin"),
        ("protocol", "tcp"),
        ("openfirewall", "false"),
    ];
    let job = run(simulator, caller, "createLoadBalancerRule", &params).await;
    (
        address,
        job["jobresult"]["loadbalancer"]["id"]
            .as_str()
            .unwrap()
            .to_owned(),
    )
}

#[tokio::test]
async fn the_built_in_seed_has_a_network_with_machines_and_a_source_nat_address() {
    let simulator = Simulator::start_with_seed(Seed::demo()).await.unwrap();
    let machines = list(
        &simulator,
        "demo",
        "listVirtualMachines",
        &[("details", "min,nics")],
    )
    .await;
    let addresses: Vec<_> = machines["virtualmachine"]
        .as_array()
        .unwrap()
        .iter()
        .map(|machine| machine["ipaddress"].clone())
        .collect();
    assert_eq!(
        addresses,
        [
            json!("127.101.0.11"),
            json!("127.101.0.12"),
            json!("127.101.0.13")
        ]
    );
    let taken = list(&simulator, "demo", "listPublicIpAddresses", &[]).await;
    assert_eq!(
        (&taken["count"], &taken["publicipaddress"][0]["issourcenat"]),
        (&json!(1), &json!(true))
    );
}

#[tokio::test]
async fn a_world_of_every_kind_of_network_can_be_built() {
    let seed = Seed::builder()
        .account("demo")
        .project("team", &["demo"])
        .vpc("demo", "cloud", "10.50.0.0/16")
        .network_seed(NetworkSeed::tier("tier", "cloud", "10.50.1.0/24"))
        .network_seed(NetworkSeed::shared("office", "10.60.0.0/24"))
        .network_seed(NetworkSeed::isolated("team-net", "10.1.1.0/24").project("team"))
        .network_seed(NetworkSeed::l2("plain").account("demo"))
        .machine(MachineSeed::new("vpc-1", "tier", None).nic("office", Some("10.60.0.20")))
        .machine(MachineSeed::new("team-1", "team-net", None))
        .build();
    let simulator = Simulator::start_with_seed(seed).await.unwrap();
    let tier = list(&simulator, "demo", "listNetworks", &[("name", "tier")]).await;
    let services: Vec<_> = tier["network"][0]["service"]
        .as_array()
        .unwrap()
        .iter()
        .map(|service| service["name"].as_str().unwrap())
        .collect();
    assert!(
        services.contains(&"NetworkACL") && !services.contains(&"Firewall"),
        "{services:?}"
    );
    let project = id_of(&simulator, "demo", "listProjects", "project", "team").await;
    assert_eq!(
        list(&simulator, "demo", "listVirtualMachines", &[]).await["count"],
        1
    );
    let of_project = list(
        &simulator,
        "demo",
        "listVirtualMachines",
        &[("projectid", &project)],
    )
    .await;
    assert_eq!(of_project["virtualmachine"][0]["name"], "team-1");
    let networks = list(&simulator, "demo", "listNetworks", &[]).await;
    assert_eq!(networks["count"], 3);
}

#[tokio::test]
async fn a_rule_lives_from_creation_to_the_release_of_its_address() {
    let simulator = Simulator::start_with_seed(small()).await.unwrap();
    let network = id_of(&simulator, "demo", "listNetworks", "network", "k8s").await;
    let node = id_of(
        &simulator,
        "demo",
        "listVirtualMachines",
        "virtualmachine",
        "node-1",
    )
    .await;
    let (address, rule) = balancer(&simulator, "demo", &network).await;
    assert!(
        simulator.routers().is_empty(),
        "a rule without members is not sent"
    );
    run(
        &simulator,
        "demo",
        "assignToLoadBalancerRule",
        &[("id", &rule), ("virtualmachineids", &node)],
    )
    .await;
    let row = simulator.dump().rules.remove(0);
    assert_eq!(
        (row.state.as_str(), row.members),
        ("Active", vec!["node-1".to_owned()])
    );
    let router = simulator.routers().into_values().next().unwrap();
    assert_eq!(
        router.balancers.values().flatten().next().unwrap().members,
        [("127.101.0.11".to_owned(), 30080)]
    );
    run(&simulator, "demo", "disassociateIpAddress", &[("id", &address)]).await;
    let dump = simulator.dump();
    assert_eq!((dump.acquired().count(), dump.rules.len()), (0, 0));
    let router = simulator.routers().into_values().next().unwrap();
    assert!(router.balancers.values().all(Vec::is_empty));
}

#[tokio::test]
async fn after_a_refused_update_the_database_shows_a_protocol_that_the_router_does_not_have() {
    let simulator = Simulator::start_with_seed(small()).await.unwrap();
    let network = id_of(&simulator, "demo", "listNetworks", "network", "k8s").await;
    let node = id_of(
        &simulator,
        "demo",
        "listVirtualMachines",
        "virtualmachine",
        "node-1",
    )
    .await;
    let (_, rule) = balancer(&simulator, "demo", &network).await;
    run(
        &simulator,
        "demo",
        "assignToLoadBalancerRule",
        &[("id", &rule), ("virtualmachineids", &node)],
    )
    .await;
    simulator.refuse_in_router("LoadBalancerConfigCommand", true);
    let job = run(
        &simulator,
        "demo",
        "updateLoadBalancerRule",
        &[("id", &rule), ("protocol", "tcp-proxy"), ("name", "other")],
    )
    .await;
    assert_eq!(job["jobresultcode"], 530);
    simulator.refuse_in_router("LoadBalancerConfigCommand", false);
    let row = simulator.dump().rules.remove(0);
    assert_eq!(
        (row.protocol.as_deref(), row.name.as_str()),
        (Some("tcp-proxy"), "web")
    );
    let router = simulator.routers().into_values().next().unwrap();
    assert_eq!(
        router
            .balancers
            .values()
            .flatten()
            .next()
            .unwrap()
            .protocol
            .as_deref(),
        Some("tcp")
    );
}

#[tokio::test]
async fn a_job_with_a_chosen_id_is_not_started_twice_but_its_first_phase_is() {
    let simulator = Simulator::start_with_seed(small()).await.unwrap();
    let network = id_of(&simulator, "demo", "listNetworks", "network", "k8s").await;
    let params = [
        ("networkid", network.as_str()),
        ("customjobid", "cccccccc-1111-4222-8333-dddddddddddd"),
    ];
    let first = call(&simulator, "demo", "associateIpAddress", &params)
        .await
        .unwrap();
    assert_eq!(first.inner()["jobid"], "cccccccc-1111-4222-8333-dddddddddddd");
    simulator.settled().await;
    assert_eq!(
        call(&simulator, "demo", "associateIpAddress", &params)
            .await
            .unwrap()
            .status,
        530
    );
    let states: Vec<_> = simulator.dump().acquired().map(|row| row.state.clone()).collect();
    assert_eq!(states, ["Allocated", "Allocating"]);
}

#[rstest]
#[case::free(&[("state", "Free")], 240)]
#[case::all(&[("allocatedonly", "false")], 241)]
#[case::taken(&[], 1)]
#[tokio::test]
async fn a_user_sees_free_addresses_when_he_asks_for_them(
    #[case] filter: &[(&str, &str)],
    #[case] count: u64,
) {
    let simulator = Simulator::start_with_seed(small()).await.unwrap();
    assert_eq!(
        list(&simulator, "demo", "listPublicIpAddresses", filter).await["count"],
        count
    );
}

#[tokio::test]
async fn a_small_page_size_of_the_server_cuts_lists_that_ask_for_no_page() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 5)
        .setting("default.page.size", "2")
        .build();
    let simulator = Simulator::start_with_seed(seed).await.unwrap();
    let page = list(&simulator, "demo", "listVirtualMachines", &[]).await;
    assert_eq!(
        (&page["count"], page["virtualmachine"].as_array().unwrap().len()),
        (&json!(5), 2)
    );
    assert_eq!(
        list(
            &simulator,
            "demo",
            "listVirtualMachines",
            &[("page", "3"), ("pagesize", "2")]
        )
        .await["virtualmachine"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        call(
            &simulator,
            "demo",
            "listVirtualMachines",
            &[("page", "1"), ("pagesize", "3")]
        )
        .await
        .unwrap()
        .status,
        431
    );
}

#[tokio::test]
async fn creates_on_one_address_wait_for_each_other_and_on_two_they_don_t() {
    let seed = small();
    let keys = Keys::generate(&seed);
    let options = Options {
        lock_pause: std::time::Duration::from_hours(1),
        ..Options::default()
    };
    let simulator = Simulator::start(seed, keys, options).await.unwrap();
    let network = id_of(&simulator, "demo", "listNetworks", "network", "k8s").await;
    let one = run(
        &simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", &network)],
    )
    .await["jobresult"]["ipaddress"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let two = run(
        &simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", &network)],
    )
    .await["jobresult"]["ipaddress"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let create = |address: &str, port: &str| {
        let (address, port) = (address.to_owned(), port.to_owned());
        let simulator = &simulator;
        async move {
            let params = [
                ("publicipid", address.as_str()),
                ("name", "r"),
                ("publicport", &port),
                ("privateport", "1"),
                ("algorithm", "source"),
                ("openfirewall", "false"),
            ];
            call(simulator, "demo", "createLoadBalancerRule", &params)
                .await
                .unwrap()
                .status
        }
    };
    assert_eq!(tokio::join!(create(&one, "80"), create(&two, "80")), (200, 200));
    simulator.change_options(|options| options.lock_hold = std::time::Duration::from_millis(200));
    let loser = tokio::time::timeout(std::time::Duration::from_secs(2), async {
        tokio::join!(create(&one, "81"), create(&one, "82"))
    })
    .await;
    assert!(loser.is_err(), "the second create waits for the whole pause");
}

#[tokio::test]
async fn a_stranger_s_project_is_432_and_an_unknown_one_431() {
    let seed = Seed::builder()
        .account("demo")
        .account("other")
        .project("team", &["demo"])
        .build();
    let simulator = Simulator::start_with_seed(seed).await.unwrap();
    let project = id_of(&simulator, "demo", "listProjects", "project", "team").await;
    let status = |caller: &'static str, id: String| {
        let simulator = &simulator;
        async move {
            call(simulator, caller, "listNetworks", &[("projectid", &id)])
                .await
                .unwrap()
                .status
        }
    };
    assert_eq!(status("demo", project.clone()).await, 200);
    assert_eq!(status("other", project).await, 432);
    assert_eq!(
        status("other", "00000000-1111-4222-8333-444444444444".into()).await,
        431
    );
}

#[tokio::test]
async fn the_kubernetes_role_has_no_right_to_list_zones() {
    let seed = Seed::builder()
        .account_with_role("kubeadmin", "Project Kubernetes Service Role")
        .build();
    let simulator = Simulator::start_with_seed(seed).await.unwrap();
    assert_eq!(
        call(&simulator, "kubeadmin", "listZones", &[])
            .await
            .unwrap()
            .status,
        432
    );
    assert_eq!(
        call(&simulator, "kubeadmin", "listNetworks", &[])
            .await
            .unwrap()
            .status,
        200
    );
}

#[rstest]
#[case::unknown_account(
    r#"{"networks":[{"name":"n","account":"nobody"}]}"#,
    "account nobody is not in the seed"
)]
#[case::unknown_network(r#"{"accounts":[{"name":"a"}],"virtualmachines":[{"name":"m","account":"a","nic":[{"networkname":"n"}]}]}"#, "network n of machine m")]
#[case::unknown_type(
    r#"{"accounts":[{"name":"a"}],"networks":[{"name":"n","account":"a","type":"Ring"}]}"#,
    "unknown type Ring"
)]
#[tokio::test]
async fn a_seed_that_contradicts_itself_is_refused_with_the_reason(#[case] text: &str, #[case] reason: &str) {
    let seed = Seed::parse(text).unwrap();
    let error = Simulator::start_with_seed(seed).await.unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
}
