//! Messages about load balancers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use proto::{Fault, v1};

use super::MAX_SOURCES;

use crate::load_balancer::{
    AdoptionHint, Answer, Demand, Departed, DialectWish, Farewell, Impact, Note, Outcome, Preview, Served,
    ServiceRef, Severity, Summary, Wait, Wish,
};
use crate::tenant::{NameOrId, Policy};
use crate::words::hint;

/// Most entries of a page of `ListLoadBalancers`, and how many it has unless the caller says.
const MAX_PAGE: usize = 500;
const USUAL_PAGE: usize = 200;
/// Most addresses that a Service publishes.
const MAX_PUBLISHED: usize = 64;

/// Reads an Ensure; notes say what of the wish was left out.
pub(in crate::rpc) fn ensure(
    request: &v1::EnsureLoadBalancerRequest,
    policy: &Policy,
) -> Result<(Demand<Wish>, Vec<Note>), Fault> {
    let service = ServiceRef::from_proto(request.r#ref.as_ref())?;
    let sources = request.wish.as_ref().map_or(0, |wish| wish.sources.len());
    if sources > MAX_SOURCES {
        let text = format!("{sources} source networks are too many; at most {MAX_SOURCES} are allowed");
        return Err(Fault::invalid("TOO_MANY_SOURCES", "sources", text));
    }
    let (goal, notes) = Wish::from_proto(request.wish.as_ref(), policy)?;
    Ok((
        Demand {
            service,
            published: published(&request.published)?,
            goal,
        },
        notes,
    ))
}

/// Reads a Delete. What only helps it, such as the name of a network, is left out where it can't be used: nobody in a namespace can
/// write what keeps a Service from going. The dialect is not the Service's but the agent's, and tells whose the older rules are.
pub(in crate::rpc) fn delete(request: &v1::DeleteLoadBalancerRequest) -> Result<Demand<Farewell>, Fault> {
    let goal = Farewell {
        keep_address: request.keep_address,
        network: hint("network", &request.network).map(NameOrId::new),
        dialect: DialectWish::from_proto(request.dialect.as_ref())?,
        adoption: AdoptionHint::from_proto(request.adoption.as_ref()),
    };
    let service = ServiceRef::from_proto(request.r#ref.as_ref())?;
    let shown = request.published.get(..MAX_PUBLISHED);
    Ok(Demand {
        service,
        published: addresses(shown.unwrap_or(&request.published)),
        goal,
    })
}

fn published(texts: &[String]) -> Result<Vec<IpAddr>, Fault> {
    if texts.len() > MAX_PUBLISHED {
        let text = format!(
            "{} published addresses are too many; at most {MAX_PUBLISHED} are allowed",
            texts.len()
        );
        return Err(Fault::invalid("TOO_MANY_PUBLISHED", "published", text));
    }
    Ok(addresses(texts))
}

/// A status may carry what is no address, such as a host name; it is not ours to remove anything for.
fn addresses(texts: &[String]) -> Vec<IpAddr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// The answer of an Ensure.
pub(in crate::rpc) fn ensured(answer: Answer<Served>) -> v1::EnsureLoadBalancerResponse {
    use v1::ensure_load_balancer_response::Outcome as Wire;
    let outcome = match answer.outcome {
        Outcome::Settled(served) => Wire::Settled(v1::LoadBalancerSettled {
            ingress: vec![v1::Ingress {
                ip: served.ingress.ip.to_string(),
                proxy: served.ingress.proxy,
            }],
            leaving: served.leaving.iter().map(ToString::to_string).collect(),
            outputs: Some(v1::Outputs {
                address_id: served.outputs.address_id.to_string(),
                network_id: served.outputs.network_id.to_string(),
                address_owned: served.outputs.address_owned,
            }),
            changes: answer.changes,
        }),
        Outcome::Pending(wait) => Wire::Pending(pending(wait)),
    };
    v1::EnsureLoadBalancerResponse {
        outcome: Some(outcome),
        notes: notes(answer.notes),
    }
}

/// The answer of a Delete.
pub(in crate::rpc) fn deleted(answer: Answer<Departed>) -> v1::DeleteLoadBalancerResponse {
    use v1::delete_load_balancer_response::Outcome as Wire;
    let outcome = match answer.outcome {
        Outcome::Settled(departed) => Wire::Settled(v1::DeleteSettled {
            released: departed.released.iter().map(ToString::to_string).collect(),
            kept: departed.kept.iter().map(ToString::to_string).collect(),
            changes: answer.changes,
        }),
        Outcome::Pending(wait) => Wire::Pending(pending(wait)),
    };
    v1::DeleteLoadBalancerResponse {
        outcome: Some(outcome),
        notes: notes(answer.notes),
    }
}

fn pending(wait: Wait) -> v1::Pending {
    v1::Pending {
        retry_after: prost_types::Duration::try_from(wait.retry_after).ok(),
        step: wait.step,
        reason: wait.reason.to_owned(),
        text: wait.text,
    }
}

/// Another call of the same balancer has the turn.
pub(in crate::rpc) fn turn_taken() -> Wait {
    Wait {
        retry_after: Duration::ZERO,
        step: "wait for the call before".to_owned(),
        reason: "CALL_RUNNING",
        text: "another call for this load balancer is at work".to_owned(),
    }
}

fn notes(notes: Vec<Note>) -> Vec<v1::Note> {
    let note = |note: Note| v1::Note {
        severity: match note.severity {
            Severity::Normal => v1::note::Severity::Normal.into(),
            Severity::Warning => v1::note::Severity::Warning.into(),
        },
        reason: note.reason.to_owned(),
        field: note.field,
        text: note.text,
    };
    notes.into_iter().map(note).collect()
}

/// What a call would do; `ignored` says what of the wish was left out.
pub(in crate::rpc) fn planned(preview: Preview, ignored: Vec<Note>) -> v1::PlanLoadBalancerResponse {
    let steps = preview.steps.into_iter().map(|step| v1::PlannedStep {
        action: step.action.to_owned(),
        object: step.object,
        reason: step.reason,
        impact: match step.impact {
            Impact::None => v1::planned_step::Impact::None.into(),
            Impact::Brief => v1::planned_step::Impact::Brief.into(),
            Impact::Outage => v1::planned_step::Impact::Outage.into(),
        },
    });
    let all = ignored.into_iter().chain(preview.notes).collect();
    v1::PlanLoadBalancerResponse {
        plan_id: preview.plan_id,
        steps: steps.collect(),
        notes: notes(all),
        refused: preview.refused,
    }
}

/// UIDs of live Services as marks carry them.
pub(in crate::rpc) fn live(request: &v1::ListLoadBalancersRequest) -> BTreeSet<String> {
    request
        .live_service_uids
        .iter()
        .map(|uid| uid.to_ascii_lowercase())
        .collect()
}

/// One page. The token is the place of its first entry, so that a list that changes in between may skip or repeat some.
pub(in crate::rpc) fn page(
    list: Vec<Summary>,
    request: &v1::ListLoadBalancersRequest,
) -> Result<v1::ListLoadBalancersResponse, Fault> {
    let wrong = || {
        Fault::invalid(
            "BAD_PAGE_TOKEN",
            "page_token",
            "this is no page token of this broker; begin anew",
        )
    };
    let first: usize = match request.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| wrong())?,
    };
    let size = match usize::try_from(request.page_size).unwrap_or(MAX_PAGE) {
        0 => USUAL_PAGE,
        size => size.min(MAX_PAGE),
    };
    let next = first.saturating_add(size);
    let next_page_token = if next < list.len() {
        next.to_string()
    } else {
        String::new()
    };
    let load_balancers = list.into_iter().skip(first).take(size).map(summary).collect();
    Ok(v1::ListLoadBalancersResponse {
        load_balancers,
        next_page_token,
    })
}

fn summary(summary: Summary) -> v1::LoadBalancerSummary {
    v1::LoadBalancerSummary {
        service_uid: summary.service_uid,
        addresses: summary.addresses.iter().map(ToString::to_string).collect(),
        address_owned: summary.address_owned,
        rules: summary.rules,
        drift: summary.drift,
        orphan: summary.orphan.unwrap_or(false),
        kept_because: summary.kept_because,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn list(count: usize) -> Vec<Summary> {
        let one = |number: usize| Summary {
            service_uid: number.to_string(),
            ..Summary::default()
        };
        (0..count).map(one).collect()
    }

    fn request(page_size: u32, page_token: &str) -> v1::ListLoadBalancersRequest {
        v1::ListLoadBalancersRequest {
            page_size,
            page_token: page_token.into(),
            ..Default::default()
        }
    }

    #[test]
    fn pages_follow_each_other_and_end() {
        let mut token = String::new();
        let mut seen = Vec::new();
        loop {
            let answer = page(list(5), &request(2, &token)).unwrap();
            seen.extend(
                answer
                    .load_balancers
                    .into_iter()
                    .map(|summary| summary.service_uid),
            );
            token = answer.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, ["0", "1", "2", "3", "4"]);
        assert_eq!(page(list(5), &request(0, "")).unwrap().load_balancers.len(), 5);
        assert_eq!(page(list(5), &request(1, "99")).unwrap().load_balancers.len(), 0);
        assert_eq!(
            page(list(600), &request(u32::MAX, ""))
                .unwrap()
                .load_balancers
                .len(),
            MAX_PAGE
        );
    }

    #[test]
    fn a_token_of_somebody_else_is_refused() {
        assert_eq!(
            page(list(1), &request(1, "x")).unwrap_err().field.as_deref(),
            Some("page_token")
        );
    }

    fn end() -> v1::DeleteLoadBalancerRequest {
        v1::DeleteLoadBalancerRequest {
            r#ref: Some(v1::LoadBalancerRef {
                uid: "u".into(),
                ..v1::LoadBalancerRef::default()
            }),
            ..v1::DeleteLoadBalancerRequest::default()
        }
    }

    #[rstest]
    #[case::sound("k8s", "192.0.2.7", Some("k8s"), "192.0.2.7")]
    #[case::blanks_around_them("k8s\n", "192.0.2.7\n", Some("k8s"), "192.0.2.7")]
    #[case::too_long(&"x".repeat(254), &"x".repeat(254), None, "")]
    #[case::of_two_lines("a\nb", "a\nb", None, "")]
    fn an_end_is_never_refused_for_texts_that_anybody_in_the_namespace_writes(
        #[case] network: &str,
        #[case] asked: &str,
        #[case] read_network: Option<&str>,
        #[case] read_address: &str,
    ) {
        let request = v1::DeleteLoadBalancerRequest {
            network: network.to_owned(),
            adoption: Some(v1::Adoption {
                load_balancer_ip: asked.to_owned(),
                ..v1::Adoption::default()
            }),
            published: vec!["192.0.2.1".into(); MAX_PUBLISHED + 1],
            ..end()
        };
        let demand = delete(&request).unwrap();
        assert_eq!(demand.goal.network, read_network.map(NameOrId::new));
        assert_eq!(demand.goal.adoption.load_balancer_ip, read_address);
        assert_eq!(demand.published.len(), MAX_PUBLISHED);
    }

    #[test]
    fn what_is_no_address_is_not_published() {
        assert_eq!(
            published(&["192.0.2.1".into(), "lb.example".into()])
                .unwrap()
                .len(),
            1
        );
        assert!(published(&vec![String::new(); MAX_PUBLISHED + 1]).is_err());
    }
}
