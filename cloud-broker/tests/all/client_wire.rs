//! The client against an endpoint that misbehaves on the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cloud_broker::cloudstack::types::{
    AddressId, Algorithm, CidrList, JobId, MachineId, NetworkId, PortRange, ProjectId, RuleId, RuleProtocol,
    Timestamp,
};
use cloud_broker::cloudstack::{
    Api, ApiError, ApiKeys, Associate, AssociateTarget, BreakerState, CreateFirewallRule, CreateRule,
    FirewallProtocol, JobFate, MachineQuery, RuleChange, RuleQuery, Settings,
};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::client_support::{Call, Fake, Reply, account, api, done, log, settings};

fn rule_id() -> RuleId {
    RuleId::parse("rule-1").unwrap()
}

fn machines() -> Vec<MachineId> {
    ["m1", "m2"].map(|id| MachineId::parse(id).unwrap()).to_vec()
}

fn create_rule(address: &str, port: u16) -> CreateRule {
    CreateRule {
        name: format!("a-tcp-{port}"),
        description: "mark".to_owned(),
        address: AddressId::parse(address).unwrap(),
        network: NetworkId::parse("n1").unwrap(),
        public_port: port,
        private_port: 30000 + port,
        algorithm: Algorithm::RoundRobin,
        protocol: RuleProtocol::Tcp,
        sources: None,
    }
}

fn firewall_rule(address: &str, port: u16) -> CreateFirewallRule {
    CreateFirewallRule {
        address: AddressId::parse(address).unwrap(),
        protocol: FirewallProtocol::Tcp,
        ports: PortRange::single(port),
        sources: CidrList::parse("0.0.0.0/0"),
    }
}

fn rule_result(id: &str) -> Value {
    json!({"loadbalancer": {"id": id, "publicport": "80", "privateport": "30080", "state": "Add"}})
}

/// Answers polls with success, everything else with a job under the id that the client chose.
fn obliging(call: &Call) -> Reply {
    match call.command() {
        "queryAsyncJobResult" => Reply::job(call.get("jobid"), 1, json!({"success": true})),
        command if command.starts_with("list") => Reply::ok(json!({})),
        _ => Reply::ok(json!({"jobid": call.get("customjobid"), "id": "made"})),
    }
}

#[tokio::test]
async fn a_call_is_a_signed_form_without_cookies() {
    let cookie = b"HTTP/1.1 200 X\r\nset-cookie: JSESSIONID=x\r\ncontent-type: application/json\r\n\
        content-length: 15\r\nconnection: close\r\n\r\n{\"xresponse\":{}}"
        .to_vec();
    let cookie = String::from_utf8(cookie)
        .unwrap()
        .replace("length: 15", "length: 16")
        .into_bytes();
    let fake = Fake::start(move |_| std::future::ready(Reply::Bytes(cookie.clone()))).await;
    let api = api(&fake);
    api.zones().await.unwrap();
    api.zones().await.unwrap();
    for call in fake.calls() {
        assert!(
            call.head.starts_with("post /client/api http/1.1"),
            "{}",
            call.head
        );
        assert!(call.head.contains("application/x-www-form-urlencoded") && !call.head.contains("cookie"));
        assert!(call.params.keys().all(|name| *name == name.to_lowercase()));
        assert_eq!(
            (call.get("response"), call.get("signatureversion")),
            ("json", "3")
        );
        assert_eq!(
            (call.get("apikey"), call.get("signature").len()),
            ("the-api-key", 28)
        );
        let ahead = Timestamp::parse(call.get("expires")).unwrap().seconds()
            - Timestamp::from(runtime::clock::wall()).seconds();
        assert!((590..=600).contains(&ahead), "valid for {ahead} s");
    }
}

#[tokio::test]
async fn a_project_is_named_in_every_list_and_in_no_write() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    let project = ProjectId::parse("p1").unwrap();
    let api = Api::new(account(&settings(&fake.url)), "tenant", Some(project));
    api.machines(&MachineQuery::default()).await.unwrap();
    api.find_network(&NetworkId::parse("n1").unwrap()).await.unwrap();
    api.rules(&RuleQuery::Mentioning("x".to_owned())).await.unwrap();
    api.find_rule(&rule_id()).await.unwrap();
    api.firewall_rules(&AddressId::parse("a1").unwrap())
        .await
        .unwrap();
    assert!(fake.calls().iter().all(|call| call.get("projectid") == "p1"));
    api.rule_members(&rule_id()).await.unwrap();
    api.zones().await.unwrap();
    let turn = api.turn_to_associate().await;
    let target = AssociateTarget::Network(NetworkId::parse("n1").unwrap());
    let job = JobId::parse("00000000-0000-4000-8000-000000000001").unwrap();
    let request = Associate {
        target,
        ip: "192.0.2.1".parse().unwrap(),
        job,
    };
    drop(api.associate(&turn, &request).await.unwrap());
    drop(api.create_rule(&create_rule("a1", 80)).await.unwrap());
    assert!(fake.calls()[5..].iter().all(|call| !call.has("projectid")));
}

#[tokio::test]
async fn a_firewall_is_never_opened_by_the_way() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    drop(api(&fake).create_rule(&create_rule("a1", 80)).await.unwrap());
    let call = &fake.calls()[0];
    assert_eq!((call.get("openfirewall"), call.get("protocol")), ("false", "tcp"));
    assert!(!call.has("cidrlist"), "old servers refuse even an empty list");
}

#[tokio::test]
async fn nothing_is_sent_that_servers_take_for_everything() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    let api = api(&fake);
    let open = CreateFirewallRule {
        sources: CidrList::default(),
        ..firewall_rule("a1", 80)
    };
    assert!(
        matches!(api.create_firewall_rule(&open).await, Err(ApiError::Rejected(refusal)) if refusal.code.is_none())
    );
    assert!(matches!(
        api.assign(&rule_id(), &[]).await,
        Err(ApiError::Rejected(_))
    ));
    assert!(matches!(
        api.remove(&rule_id(), &[]).await,
        Err(ApiError::Rejected(_))
    ));
    assert!(matches!(
        api.update_rule(&rule_id(), &RuleChange::default()).await,
        Err(ApiError::Rejected(_))
    ));
    assert!(fake.calls().is_empty());
}

#[rstest]
#[case::gateway(Reply::html(502))]
#[case::closed(Reply::Cut)]
#[case::half(Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{\"list".to_vec()))]
#[case::shutting_down(Reply::error(503, "Maintenance or Shutdown"))]
#[case::throttled(Reply::error(429, "please retry after [5] ms."))]
#[tokio::test]
async fn a_read_is_repeated(#[case] first: Reply) {
    let asked = Arc::new(AtomicUsize::new(0));
    let fake = Fake::start(move |_| {
        let reply = match asked.fetch_add(1, Ordering::SeqCst) {
            0 => first.clone(),
            _ => Reply::ok(json!({"count": 1, "zone": [{"id": "z", "name": "zone"}]})),
        };
        std::future::ready(reply)
    })
    .await;
    assert_eq!(api(&fake).zones().await.unwrap().items().len(), 1);
    assert_eq!(fake.calls().len(), 2);
}

#[tokio::test]
async fn a_read_is_not_repeated_for_ever() {
    let fake = Fake::start(|_| std::future::ready(Reply::html(502))).await;
    let error = api(&fake).zones().await.unwrap_err();
    assert!(
        matches!(
            error,
            ApiError::Unreachable {
                maybe_executed: false,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fake.calls().len(), 4);
}

#[rstest]
#[case::shutting_down(Reply::error(503, "Maintenance or Shutdown"))]
#[case::throttled(Reply::error(429, "please retry after [5] ms."))]
#[case::throttled_by_a_gateway(Reply::html(429))]
#[tokio::test]
async fn a_write_that_was_not_executed_is_repeated_under_the_same_job(#[case] first: Reply) {
    let asked = Arc::new(AtomicUsize::new(0));
    let fake = Fake::start(move |call| {
        let refuse =
            call.command() == "assignToLoadBalancerRule" && asked.fetch_add(1, Ordering::SeqCst) == 0;
        std::future::ready(if refuse { first.clone() } else { obliging(&call) })
    })
    .await;
    done(api(&fake).assign(&rule_id(), &machines())).await.unwrap();
    let calls = fake.calls();
    assert_eq!(fake.count("assignToLoadBalancerRule"), 2);
    assert_eq!(calls[0].get("customjobid"), calls[1].get("customjobid"));
    assert_eq!(calls[0].get("virtualmachineids"), "m1,m2");
}

#[rstest]
#[case::closed(Reply::Cut)]
#[case::half(Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{\"create".to_vec()))]
#[case::gateway(Reply::html(504))]
#[case::garbage(Reply::Bytes(b"HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\n{\"cr".to_vec()))]
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_found_by_its_job_and_not_sent_again(#[case] lost: Reply) {
    let polls = Arc::new(AtomicUsize::new(0));
    let fake = Fake::start(move |call| {
        let reply = match call.command() {
            "createLoadBalancerRule" => lost.clone(),
            // The server is at its first phase, then the job runs, then it is over.
            _ => match polls.fetch_add(1, Ordering::SeqCst) {
                0 => Reply::gone(),
                1 => Reply::ok(json!({"jobid": call.get("jobid"), "jobstatus": 0, "jobinstanceid": "made"})),
                _ => Reply::job(call.get("jobid"), 1, rule_result("made")),
            },
        };
        std::future::ready(reply)
    })
    .await;
    let started = api(&fake).create_rule(&create_rule("a1", 80)).await.unwrap();
    assert_eq!(started.id(), Some(RuleId::parse("made").unwrap()));
    assert_eq!(started.job().as_str(), fake.calls()[0].get("customjobid"));
    assert_eq!(
        started.finished().await.unwrap().id,
        RuleId::parse("made").unwrap()
    );
    assert_eq!(fake.count("createLoadBalancerRule"), 1);
}

#[tokio::test]
async fn a_write_whose_job_nobody_knows_may_have_been_executed_and_is_left_to_the_caller() {
    let fake = Fake::start(|call| {
        let create = call.command() == "createLoadBalancerRule";
        std::future::ready(if create { Reply::Cut } else { Reply::gone() })
    })
    .await;
    let api = api(&fake);
    let error = api.create_rule(&create_rule("a1", 80)).await.unwrap_err();
    assert!(
        matches!(
            error,
            ApiError::Unreachable {
                maybe_executed: true,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(fake.count("createLoadBalancerRule"), 1);
    assert!(!api.account().works_on("made"));
}

#[tokio::test]
async fn a_connection_that_was_never_made_executes_nothing_and_tells_no_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/client/api", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    drop(listener);
    let api = Api::new(account(&settings(&url)), "tenant", None);
    let error = api.create_rule(&create_rule("a1", 80)).await.unwrap_err();
    assert!(
        matches!(
            error,
            ApiError::Unreachable {
                maybe_executed: false,
                ..
            }
        ),
        "{error}"
    );
    let text = format!("{error} {error:?}");
    assert!(text.contains("refused"), "{text}");
    assert!(
        !text.contains("127.0.0.1") && !text.contains("signature") && !text.contains("key"),
        "{text}"
    );
}

#[tokio::test]
async fn a_slow_server_is_not_waited_for_beyond_the_limit() {
    let never = Arc::new(Notify::new());
    let fake = Fake::start(move |_| {
        let never = Arc::clone(&never);
        async move {
            never.notified().await;
            Reply::Cut
        }
    })
    .await;
    let settings = Settings {
        request_timeout: Duration::from_millis(100),
        ..settings(&fake.url)
    };
    let api = Api::new(account(&settings), "tenant", None);
    let error = api.zones().await.unwrap_err();
    assert!(
        matches!(&error, ApiError::Unreachable { reason, .. } if reason.contains("time limit")),
        "{error}"
    );
}

#[tokio::test]
async fn a_failed_job_tells_its_code_and_a_missing_result_is_a_failure_too() {
    let fake = Fake::start(|call| {
        std::future::ready(match (call.command(), call.get("jobid")) {
            ("queryAsyncJobResult", "told") => {
                Reply::job("told", 2, json!({"errorcode": 530, "errortext": "Failed"}))
            }
            ("queryAsyncJobResult", _) => {
                Reply::ok(json!({"jobid": "untold", "jobstatus": 2, "jobresultcode": 530}))
            }
            ("assignToLoadBalancerRule", _) => Reply::ok(json!({"jobid": "told"})),
            _ => Reply::ok(json!({"jobid": "untold"})),
        })
    })
    .await;
    let api = api(&fake);
    let told = done(api.assign(&rule_id(), &machines())).await.unwrap_err();
    let ApiError::JobFailed { job, refusal } = &told else {
        panic!("{told}")
    };
    assert_eq!(
        (job.as_str(), refusal.code, refusal.text.as_str()),
        ("told", Some(530), "Failed")
    );
    let untold = done(api.remove(&rule_id(), &machines())).await.unwrap_err();
    assert!(matches!(untold, ApiError::JobFailed { .. }) && untold.maybe_executed());
}

#[tokio::test]
async fn a_job_whose_record_is_gone_is_lost_not_failed() {
    let fake = Fake::start(|call| {
        std::future::ready(if call.command() == "queryAsyncJobResult" {
            Reply::gone()
        } else {
            obliging(&call)
        })
    })
    .await;
    let error = done(api(&fake).delete_rule(&rule_id())).await.unwrap_err();
    assert!(
        matches!(error, ApiError::JobLost { .. }) && error.maybe_executed(),
        "{error}"
    );
    assert_eq!(fake.count("queryAsyncJobResult"), 2);
}

#[tokio::test]
async fn a_poll_without_an_answer_says_nothing_about_the_job() {
    let polls = Arc::new(AtomicUsize::new(0));
    let replies = [
        Reply::Cut,
        Reply::html(502),
        Reply::error(503, "shutdown"),
        Reply::error(429, "retry after [1] ms"),
    ];
    let fake = Fake::start(move |call| {
        let reply = match call.command() {
            "queryAsyncJobResult" => {
                let number = polls.fetch_add(1, Ordering::SeqCst);
                replies.get(number).cloned().unwrap_or_else(|| obliging(&call))
            }
            _ => obliging(&call),
        };
        std::future::ready(reply)
    })
    .await;
    done(api(&fake).delete_rule(&rule_id())).await.unwrap();
    assert_eq!(fake.count("queryAsyncJobResult"), 5);
}

#[tokio::test]
async fn a_command_that_is_done_on_the_spot_needs_no_job() {
    let fake = Fake::start(|_| std::future::ready(Reply::ok(json!({"success": "true"})))).await;
    done(api(&fake).delete_rule(&rule_id())).await.unwrap();
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn a_command_is_followed_to_its_job_when_the_caller_leaves() {
    let (arrived, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (arrival, release) = (Arc::clone(&arrived), Arc::clone(&answer));
    let fake = Fake::start(move |call| {
        let (arrived, answer) = (Arc::clone(&arrived), Arc::clone(&answer));
        async move {
            if call.command() == "assignToLoadBalancerRule" {
                arrived.notify_one();
                answer.notified().await;
            }
            obliging(&call)
        }
    })
    .await;
    let api = api(&fake).for_work("service");
    {
        let members = machines();
        let id = rule_id();
        let mut call = std::pin::pin!(api.assign(&id, &members));
        tokio::select! {
            _ = &mut call => panic!("no answer has been given"),
            () = arrival.notified() => {}
        }
    }
    assert!(api.account().works_on("rule-1"), "it is being started");
    let settled = api.settled();
    release.notify_one();
    settled.await;
    assert!(!api.account().works_on("rule-1"));
    assert_eq!(
        (
            fake.count("assignToLoadBalancerRule"),
            fake.count("queryAsyncJobResult")
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_job_is_never_asked_for_twice_at_once_whoever_waits() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, polls) = (Arc::clone(&most), Arc::new(AtomicUsize::new(0)));
    let fake = Fake::start(move |call| {
        let (running, most, polls) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&polls));
        async move {
            if call.command() != "queryAsyncJobResult" {
                return obliging(&call);
            }
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            match polls.fetch_add(1, Ordering::SeqCst) {
                0..5 => Reply::job(call.get("jobid"), 0, Value::Null),
                _ => obliging(&call),
            }
        }
    })
    .await;
    let api = api(&fake);
    let started = api.assign(&rule_id(), &machines()).await.unwrap();
    let job = started.job().clone();
    let waiting =
        (0..5).map(|_| api.await_job(cloud_broker::cloudstack::Command::AssignToLoadBalancerRule, &job));
    let (end, fates) = tokio::join!(started.finished(), futures::future::join_all(waiting));
    end.unwrap();
    assert!(fates.iter().all(|fate| matches!(fate, Ok(JobFate::Succeeded(_)))));
    assert_eq!(seen.load(Ordering::SeqCst), 1, "polls at a time");
}

#[tokio::test]
async fn a_job_of_an_earlier_process_is_awaited_by_its_id() {
    let polls = Arc::new(AtomicUsize::new(0));
    let fake = Fake::start(move |call| {
        let status = u8::from(polls.fetch_add(1, Ordering::SeqCst) >= 3);
        std::future::ready(Reply::job(call.get("jobid"), status, json!({"success": true})))
    })
    .await;
    let job = JobId::parse("00000000-0000-4000-8000-000000000001").unwrap();
    let command = cloud_broker::cloudstack::Command::AssociateIpAddress;
    let end = api(&fake).await_job(command, &job).await.unwrap();
    assert!(matches!(end, JobFate::Succeeded(_)), "{end:?}");
}

#[rstest]
#[case::unknown(Reply::gone(), JobFate::Unknown)]
#[case::foreign(Reply::error(531, "not authorized to see job id=9"), JobFate::Foreign)]
#[tokio::test]
async fn a_job_that_can_not_be_seen_is_no_proof(#[case] reply: Reply, #[case] fate: JobFate) {
    let fake = Fake::start(move |_| std::future::ready(reply.clone())).await;
    let job = JobId::parse("00000000-0000-4000-8000-000000000001").unwrap();
    assert_eq!(api(&fake).job(&job).await.unwrap(), fate);
}

/// Starts so many jobs, lets them end after so many polls and lists; returns the counts of queries and lists.
async fn many_jobs(
    count: usize,
    list: impl Fn(&[String]) -> Reply + Send + Sync + 'static,
) -> (usize, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let ids: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let fake = Fake::start(move |call| {
        let reply = match call.command() {
            // All are pending until each has been asked for once and three lists were read.
            "queryAsyncJobResult" if asked.fetch_add(1, Ordering::SeqCst) < count => {
                Reply::job(call.get("jobid"), 0, Value::Null)
            }
            "listAsyncJobs" => list(&ids.lock()),
            _ => {
                ids.lock().push(call.get("customjobid").to_owned());
                obliging(&call)
            }
        };
        std::future::ready(reply)
    })
    .await;
    let api = api(&fake);
    let started = (0..count).map(|number| {
        let api = api.clone();
        async move {
            let id = RuleId::parse(&format!("rule-{number}")).unwrap();
            done(api.delete_rule(&id)).await.unwrap();
        }
    });
    futures::future::join_all(started).await;
    (fake.count("queryAsyncJobResult"), fake.count("listAsyncJobs"))
}

#[tokio::test]
async fn many_pending_jobs_are_asked_for_together() {
    let lists = AtomicUsize::new(0);
    let list = move |ids: &[String]| {
        let pending = lists.fetch_add(1, Ordering::SeqCst) < 3;
        let jobs: Vec<Value> = ids
            .iter()
            .filter(|_| pending)
            .map(|id| json!({"jobid": id, "jobstatus": 0}))
            .collect();
        Reply::ok(json!({"count": jobs.len(), "asyncjobs": jobs}))
    };
    let (queries, lists) = many_jobs(20, list).await;
    assert!(lists >= 1, "{lists} lists");
    assert!(queries <= 60, "{queries} queries for 20 jobs");
}

#[tokio::test]
async fn without_the_right_to_list_jobs_each_is_asked_for() {
    let (queries, lists) = many_jobs(20, |_| {
        Reply::error(432, "The API [listAsyncJobs] does not exist")
    })
    .await;
    assert!(lists <= 1, "{lists} lists");
    assert!(queries >= 40, "{queries} queries for 20 jobs");
}

#[tokio::test]
async fn creates_on_one_address_go_one_after_the_other_and_a_firewall_rule_until_its_job_is_over() {
    #[derive(Default)]
    struct Seen {
        creating: usize,
        most: usize,
        firewall_jobs: usize,
        overlaps: usize,
    }
    let seen: Arc<parking_lot::Mutex<Seen>> = Arc::default();
    let result = Arc::clone(&seen);
    let fake = Fake::start(move |call| {
        let seen = Arc::clone(&seen);
        async move {
            if call.command() == "queryAsyncJobResult" {
                let firewall = call.get("jobid").starts_with("fw");
                seen.lock().firewall_jobs -= usize::from(firewall);
                let result = if firewall {
                    json!({"firewallrule": {"id": "f"}})
                } else {
                    rule_result("r")
                };
                return Reply::job(call.get("jobid"), 1, result);
            }
            {
                let mut seen = seen.lock();
                seen.creating += 1;
                seen.most = seen.most.max(seen.creating);
                seen.overlaps += seen.firewall_jobs;
            }
            tokio::task::yield_now().await;
            let mut seen = seen.lock();
            seen.creating -= 1;
            let firewall = call.command() == "createFirewallRule";
            seen.firewall_jobs += usize::from(firewall);
            let job = if firewall {
                format!("fw{}", call.get("startport"))
            } else {
                call.get("customjobid").to_owned()
            };
            Reply::ok(json!({"jobid": job, "id": "x"}))
        }
    })
    .await;
    let api = api(&fake);
    let calls = (1..6).map(|port| {
        let api = &api;
        async move {
            let (rule, firewall) = (create_rule("a1", port), firewall_rule("a1", port));
            let rule = async { done(api.create_rule(&rule)).await.unwrap() };
            let firewall = async { done(api.create_firewall_rule(&firewall)).await.unwrap() };
            tokio::join!(rule, firewall);
        }
    });
    futures::future::join_all(calls).await;
    let seen = result.lock();
    assert_eq!((seen.most, seen.overlaps), (1, 0));
}

#[tokio::test]
async fn a_list_that_is_cut_is_read_whole() {
    let fake = Fake::start(|call| {
        let page: usize = call.get("page").parse().unwrap_or(1);
        let size: usize = call.get("pagesize").parse().unwrap_or(2);
        assert!(call.has("page") == call.has("pagesize") && size <= 2);
        let zones: Vec<Value> = (1..=5)
            .skip((page - 1) * size)
            .take(size)
            .map(|number| json!({"id": number.to_string()}))
            .collect();
        std::future::ready(Reply::ok(json!({"count": "5", "zone": zones})))
    })
    .await;
    let zones = api(&fake).zones().await.unwrap();
    assert_eq!(
        (zones.is_complete(), zones.items().len(), fake.calls().len()),
        (true, 5, 3)
    );
}

#[tokio::test]
async fn of_the_free_addresses_some_are_enough_whatever_page_size_the_operator_chose() {
    let fake = Fake::start(|call| {
        let size: usize = call.get("pagesize").parse().unwrap_or(4);
        std::future::ready(if size > 4 {
            Reply::error(431, "Page size can't exceed max allowed page size value: 4")
        } else {
            let free: Vec<Value> = (1..=size)
                .map(|n| json!({"id": n.to_string(), "ipaddress": format!("192.0.2.{n}"), "state": "Free"}))
                .collect();
            Reply::ok(json!({"count": 192, "publicipaddress": free}))
        })
    })
    .await;
    assert_eq!(api(&fake).free_addresses(None).await.unwrap().len(), 4);
    let sizes: Vec<String> = fake
        .calls()
        .iter()
        .map(|call| call.get("pagesize").to_owned())
        .collect();
    assert_eq!(sizes, ["16", ""]);
}

#[tokio::test]
async fn an_answer_that_no_server_gives_names_the_url_as_a_suspect() {
    let fake = Fake::start(|_| std::future::ready(Reply::html(200))).await;
    let error = api(&fake).zones().await.unwrap_err();
    assert!(matches!(error, ApiError::Odd { .. }));
    assert!(
        error.to_string().contains("is the URL that of the API?"),
        "{error}"
    );
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn after_several_calls_without_an_answer_the_api_is_left_alone_until_it_answers() {
    let healthy = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let health = Arc::clone(&healthy);
    let fake = Fake::start(move |call| {
        std::future::ready(if health.load(Ordering::SeqCst) {
            obliging(&call)
        } else {
            Reply::html(502)
        })
    })
    .await;
    let api = api(&fake);
    let mut calls = 0;
    while api.account().breaker() == BreakerState::Closed {
        let _ = api.zones().await;
        calls += 1;
        assert!(calls < 10, "the breaker never opened");
    }
    let before = fake.calls().len();
    let error = api.zones().await.unwrap_err();
    assert!(
        matches!(
            &error,
            ApiError::Unreachable {
                maybe_executed: false,
                ..
            }
        ),
        "{error}"
    );
    assert!(fake.calls().len() <= before + 1);
    healthy.store(true, Ordering::SeqCst);
    let mut back = api.zones().await;
    while back.is_err() {
        tokio::task::yield_now().await;
        back = api.zones().await;
    }
    assert_eq!(api.account().breaker(), BreakerState::Closed);
}

#[tokio::test]
async fn new_keys_are_used_from_the_next_call_on() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    let api = api(&fake);
    api.zones().await.unwrap();
    let keys = ApiKeys {
        api_key: "new-key".into(),
        secret_key: "new-secret".into(),
    };
    api.account()
        .replace(&Settings {
            keys,
            ..settings(&fake.url)
        })
        .unwrap();
    api.zones().await.unwrap();
    let keys: Vec<String> = fake
        .calls()
        .iter()
        .map(|call| call.get("apikey").to_owned())
        .collect();
    assert_eq!(keys, ["the-api-key", "new-key"]);
}

#[tokio::test]
async fn what_was_seen_through_other_keys_is_no_reason_to_write() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    let before = api(&fake);
    let keys = ApiKeys {
        api_key: "new-key".into(),
        secret_key: "new-secret".into(),
    };
    let other = Settings {
        keys,
        ..settings(&fake.url)
    };
    assert!(before.account().replace(&other).unwrap());
    assert!(matches!(
        before.delete_rule(&rule_id()).await,
        Err(ApiError::Rekeyed { .. })
    ));
    assert_eq!(fake.count("deleteLoadBalancerRule"), 0);
    let after = Api::new(Arc::clone(before.account()), "tenant", None);
    let _started = after.delete_rule(&rule_id()).await.unwrap();
    assert_eq!(fake.count("deleteLoadBalancerRule"), 1);
}

#[tokio::test]
async fn the_clock_of_a_gateway_is_followed() {
    let body = r#"{"xresponse":{}}"#;
    let reply = format!(
        "HTTP/1.1 200 X\r\ndate: Thu, 01 May 2031 10:20:30 GMT\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let fake = Fake::start(move |_| std::future::ready(Reply::Bytes(reply.clone().into_bytes()))).await;
    let api = api(&fake);
    api.zones().await.unwrap();
    api.zones().await.unwrap();
    assert!(api.account().clock_offset() > 3600);
    let expires = Timestamp::parse(fake.calls()[1].get("expires"))
        .unwrap()
        .seconds();
    let told = Timestamp::parse("2031-05-01T10:30:30Z").unwrap().seconds();
    assert!((expires - told).abs() < 60, "{expires} against {told}");
}

#[tokio::test]
async fn no_write_is_sent_by_a_process_that_stops() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    let surroundings = crate::client_support::Surroundings::new();
    let shutdown = surroundings.environment.shutdown.clone();
    let account = cloud_broker::cloudstack::Account::new(
        "main",
        &settings(&fake.url),
        surroundings.environment.clone(),
    )
    .unwrap();
    let api = Api::new(account, "tenant", None);
    shutdown.cancel();
    assert!(matches!(
        api.delete_rule(&rule_id()).await,
        Err(ApiError::Stopping { .. })
    ));
    api.zones().await.unwrap();
    assert_eq!(fake.count("deleteLoadBalancerRule"), 0);
    surroundings.environment.tasks.close();
    surroundings.environment.tasks.wait().await;
}

#[tokio::test]
async fn waiters_learn_that_the_process_stops() {
    let fake = Fake::start(|call| {
        let poll = call.command() == "queryAsyncJobResult";
        std::future::ready(if poll {
            Reply::job(call.get("jobid"), 0, Value::Null)
        } else {
            obliging(&call)
        })
    })
    .await;
    let surroundings = crate::client_support::Surroundings::new();
    let account = cloud_broker::cloudstack::Account::new(
        "main",
        &settings(&fake.url),
        surroundings.environment.clone(),
    )
    .unwrap();
    let api = Api::new(account, "tenant", None);
    let started = api.delete_rule(&rule_id()).await.unwrap();
    fake.until("queryAsyncJobResult", 2).await;
    surroundings.environment.shutdown.cancel();
    assert!(matches!(started.finished().await, Err(ApiError::Stopping { .. })));
    surroundings.environment.tasks.close();
    surroundings.environment.tasks.wait().await;
}

#[rstest]
#[case::scheme("ftp://cloud.example.org/client/api", "neither http nor https")]
#[case::password("https://user:hidden@cloud.example.org/client/api", "a user or a password")]
#[case::query("https://cloud.example.org/client/api?command=x", "a query")]
fn a_url_that_is_none_of_an_api_is_refused_without_telling_what_it_hides(
    #[case] url: &str,
    #[case] reason: &str,
) {
    let surroundings = crate::client_support::Surroundings::new();
    let error = cloud_broker::cloudstack::Account::new(
        "main",
        &settings(&url.parse().unwrap()),
        surroundings.environment,
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains(reason) && !text.contains("hidden"), "{text}");
}

#[tokio::test]
async fn no_key_and_no_signature_is_in_any_log_at_any_level() {
    let fake = Fake::start(|call| {
        let refused = call.command() == "listZones";
        std::future::ready(if refused {
            Reply::error(401, "unable to verify")
        } else {
            obliging(&call)
        })
    })
    .await;
    let keys = ApiKeys {
        api_key: "logged-api-key".into(),
        secret_key: "logged-secret-key".into(),
    };
    let settings = Settings {
        keys,
        ..settings(&fake.url)
    };
    let api = Api::new(account(&settings), "tenant", None);
    let error = api.zones().await.unwrap_err();
    tracing::error!(%error, ?error, account = ?api.account(), ?settings, "told");
    let started = api.delete_rule(&rule_id()).await.unwrap();
    let job = started.job().to_string();
    started.finished().await.unwrap();
    let log = log();
    let call = log
        .lines()
        .find(|line| line.contains("call answered") && line.contains(&job));
    let call = call.expect("the call is logged with its job");
    for field in [
        "command=\"deleteLoadBalancerRule\"",
        "class=\"write\"",
        "attempt=1",
        "ms=",
    ] {
        assert!(call.contains(field), "{field} is missing in {call}");
    }
    let signatures = fake
        .calls()
        .into_iter()
        .map(|call| call.get("signature").to_owned());
    let known = ["logged-api-key", "logged-secret-key", "signature="].map(str::to_owned);
    for secret in known.into_iter().chain(signatures) {
        assert!(!log.contains(&secret), "{secret} is in the log");
    }
}

/// An HTTPS endpoint with a certificate of its own; its PEM.
async fn https() -> (url::Url, String, tokio_util::sync::DropGuard) {
    runtime::host::install_tls_provider();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/client/api", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    tokio_util::task::TaskTracker::new().spawn(async move {
        while let Some(Ok((stream, _))) = stopped.run_until_cancelled(listener.accept()).await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut request = vec![0; 4096];
                let _ = stream.read(&mut request).await;
                let body = "{\"xresponse\":{}}";
                let head = format!(
                    "HTTP/1.1 200 X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (url, made.cert.pem(), stop.drop_guard())
}

#[tokio::test]
async fn a_certificate_is_trusted_only_when_somebody_says_so() {
    let (url, pem, _running) = https().await;
    let untrusted = Api::new(account(&settings(&url)), "tenant", None)
        .zones()
        .await
        .unwrap_err();
    assert!(
        matches!(
            &untrusted,
            ApiError::Unreachable {
                maybe_executed: false,
                ..
            }
        ),
        "{untrusted}"
    );
    assert!(untrusted.to_string().contains("certificate"), "{untrusted}");
    let with_ca = Settings {
        ca_pem: Some(pem.into_bytes()),
        ..settings(&url)
    };
    Api::new(account(&with_ca), "tenant", None).zones().await.unwrap();
    let unverified = Settings {
        verify_tls: false,
        ..settings(&url)
    };
    Api::new(account(&unverified), "tenant", None)
        .zones()
        .await
        .unwrap();
    let no_pem = Settings {
        ca_pem: Some(b"nonsense".to_vec()),
        ..settings(&url)
    };
    let surroundings = crate::client_support::Surroundings::new();
    let error =
        cloud_broker::cloudstack::Account::new("main", &no_pem, surroundings.environment).unwrap_err();
    assert!(error.to_string().contains("PEM is expected"), "{error}");
}

#[tokio::test]
async fn what_is_counted_can_be_scraped() {
    let fake = Fake::start(|call| std::future::ready(obliging(&call))).await;
    let surroundings = crate::client_support::Surroundings::new();
    let account = cloud_broker::cloudstack::Account::new(
        "main",
        &settings(&fake.url),
        surroundings.environment.clone(),
    )
    .unwrap();
    let api = Api::new(account, "tenant", None);
    done(api.delete_rule(&rule_id())).await.unwrap();
    let mut registry = prometheus_client::registry::Registry::default();
    surroundings.environment.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let call = r#"cloudstack_api_calls_total{account="main",command="deleteLoadBalancerRule",class="write",outcome="ok"} 1"#;
    assert!(text.contains(call), "{text}");
    assert!(
        text.contains("cloudstack_api_job_duration_seconds_count"),
        "{text}"
    );
    assert!(
        text.contains(
            r#"cloudstack_api_budget_wait_seconds_count{account="main",tenant="tenant",class="write"} 1"#
        ),
        "{text}"
    );
}
