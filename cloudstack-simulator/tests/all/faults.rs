//! Fault scripts, from code and over HTTP.

use cloudstack_simulator::{Effect, Fault, Handle, Hold, Seed, Simulator};
use rstest::rstest;
use serde_json::json;

use crate::client::{call, exchange, run};

async fn cloud() -> Handle {
    let seed = Seed::builder()
        .account("demo")
        .account("other")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 2)
        .build();
    Simulator::start_with_seed(seed).await.unwrap()
}

async fn network(simulator: &Handle) -> String {
    let list = call(simulator, "demo", "listNetworks", &[("name", "k8s")])
        .await
        .unwrap()
        .inner();
    list["network"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_error_is_answered_instead_of_the_nth_call_of_one_caller() {
    let simulator = cloud().await;
    simulator.add_fault(Fault::at("listZones", 2, Effect::error(503, "come back later")).by("demo"));
    let mut statuses = Vec::new();
    for caller in ["demo", "other", "demo", "demo"] {
        statuses.push(call(&simulator, caller, "listZones", &[]).await.unwrap().status);
    }
    assert_eq!(statuses, [200, 200, 503, 200]);
    assert_eq!(simulator.faults()[0].seen, 3);
}

#[rstest]
#[case::before_it_took_effect(Effect::CutBefore, 0)]
#[case::after_it_took_effect(Effect::CutAfter, 1)]
#[tokio::test]
async fn a_connection_is_cut(#[case] effect: Effect, #[case] taken: usize) {
    let simulator = cloud().await;
    let network = network(&simulator).await;
    simulator.add_fault(Fault::at("associateIpAddress", 1, effect));
    assert!(
        call(
            &simulator,
            "demo",
            "associateIpAddress",
            &[("networkid", &network)]
        )
        .await
        .is_err()
    );
    simulator.settled().await;
    assert_eq!(simulator.dump().acquired().count(), taken);
    run(
        &simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", &network)],
    )
    .await;
    assert_eq!(simulator.dump().acquired().count(), taken + 1);
}

#[tokio::test]
async fn a_job_fails_although_its_work_was_done() {
    let simulator = cloud().await;
    let network = network(&simulator).await;
    simulator.add_fault(Fault::at(
        "associateIpAddress",
        1,
        Effect::FailJob {
            code: 530,
            text: "lost".into(),
        },
    ));
    let job = run(
        &simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", &network)],
    )
    .await;
    assert_eq!(
        (&job["jobstatus"], &job["jobresult"]["errortext"]),
        (&json!(2), &json!("lost"))
    );
    assert_eq!(simulator.dump().acquired().count(), 1);
}

#[tokio::test]
async fn the_answer_of_a_gateway_comes_as_it_is() {
    let simulator = cloud().await;
    simulator.add_fault(Fault::always(
        "read",
        Effect::Raw {
            status: 502,
            content_type: "text/html".into(),
            body: "<html>bad gateway</html>".into(),
        },
    ));
    let answer = call(&simulator, "demo", "listZones", &[]).await.unwrap();
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (502, "<html>bad gateway</html>")
    );
    simulator.clear_faults();
    assert_eq!(
        call(&simulator, "demo", "listZones", &[]).await.unwrap().status,
        200
    );
}

#[tokio::test]
async fn a_wrongly_signed_call_is_not_struck() {
    let simulator = cloud().await;
    simulator.add_fault(Fault::at("listZones", 1, Effect::error(503, "")));
    let unsigned = exchange(
        simulator.address(),
        "GET /client/api?command=listZones&response=json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(unsigned.unwrap().status, 401);
    assert_eq!(
        call(&simulator, "demo", "listZones", &[]).await.unwrap().status,
        503
    );
}

async fn control(simulator: &Handle, method: &str, path: &str, body: &str) -> serde_json::Value {
    let text = format!(
        "{method} /simulator/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(simulator.address(), &text).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json().unwrap()
}

#[tokio::test]
async fn everything_can_be_steered_over_http_too() {
    let simulator = cloud().await;
    control(
        &simulator,
        "POST",
        "faults",
        r#"{"command":"listZones","effect":"cut_before"}"#,
    )
    .await;
    assert!(call(&simulator, "demo", "listZones", &[]).await.is_err());
    control(&simulator, "DELETE", "faults", "").await;
    control(&simulator, "DELETE", "calls", "").await;
    call(&simulator, "demo", "listZones", &[]).await.unwrap();
    let calls = control(&simulator, "GET", "calls", "").await;
    assert_eq!(
        (&calls["by_command"], &calls["by_kind"]),
        (&json!({ "listZones": 1 }), &json!({ "read": 1 }))
    );
    control(
        &simulator,
        "POST",
        "machines",
        r#"{"name":"node-3","network":"k8s","address":"127.101.0.30"}"#,
    )
    .await;
    control(&simulator, "POST", "machines/node-1/stop", "").await;
    let dump = control(&simulator, "GET", "dump", "").await;
    let states: Vec<_> = dump["machines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|machine| machine["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["Stopped", "Running", "Running"]);
    control(
        &simulator,
        "PUT",
        "settings",
        r#"{"api.throttling.enabled":"true","api.throttling.max":"1"}"#,
    )
    .await;
    control(
        &simulator,
        "PUT",
        "options",
        r#"{"latency_ms":0,"lock_scale":0.5}"#,
    )
    .await;
    assert_eq!(
        call(&simulator, "demo", "listZones", &[]).await.unwrap().status,
        200
    );
    assert_eq!(
        call(&simulator, "demo", "listZones", &[]).await.unwrap().status,
        429
    );
}

#[tokio::test]
async fn a_held_job_stands_still_until_it_is_released() {
    let simulator = cloud().await;
    let network = network(&simulator).await;
    simulator.hold_jobs(&[Hold::at_start("associateIpAddress")]);
    let started = call(
        &simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", &network)],
    )
    .await
    .unwrap()
    .inner();
    let job = started["jobid"].as_str().unwrap();
    let poll = call(&simulator, "demo", "queryAsyncJobResult", &[("jobid", job)])
        .await
        .unwrap()
        .inner();
    assert_eq!(poll["jobstatus"], 0);
    assert_eq!(simulator.dump().acquired().next().unwrap().state, "Allocating");
    simulator.release_jobs().await;
    let poll = call(&simulator, "demo", "queryAsyncJobResult", &[("jobid", job)])
        .await
        .unwrap()
        .inner();
    assert_eq!(poll["jobstatus"], 1);
    assert_eq!(simulator.dump().acquired().next().unwrap().state, "Allocated");
}
