//! Asks the broker how things stand, again and again, and tells people what changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proto::CONTRACT_VERSION;
use proto::v1::{DescribeResponse, finding::Severity};
use runtime::health::Gate;
use tokio_util::sync::CancellationToken;

use super::Broker;

/// How often to ask, where the broker does not say.
const USUAL: Duration = Duration::from_secs(30);
/// Bounds of what the broker may say.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(10);
/// Wait after the first failure; doubled up to [`USUAL`].
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Clocks further apart than this are worth a line.
const CLOCKS_APART: i64 = 30;

/// A line for people, told once while it stays true.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    severity: i32,
    reason: String,
    object: String,
    text: String,
}

impl Broker {
    /// Asks until `stop`. `ready` is open while the broker answers and speaks our contract.
    pub async fn keep_describing(&self, ready: Gate, stop: CancellationToken) {
        let mut told = BTreeSet::new();
        let mut fault = None;
        let mut retry = FIRST_RETRY;
        loop {
            let Some(answer) = stop.run_until_cancelled(self.describe()).await else {
                return;
            };
            self.shared.metrics.set_broker_up(answer.is_ok());
            let wait = match answer {
                Ok(answer) => {
                    retry = FIRST_RETRY;
                    if fault.take().is_some() || self.description().is_none() {
                        greet(&answer);
                    }
                    told = tell(lines(&answer, runtime::clock::unix()), &told);
                    match speaks_ours(&answer) {
                        Ok(()) => ready.open(),
                        Err(why) => ready.close(why),
                    }
                    let wait = refresh(&answer);
                    self.shared.described.send_replace(Some(Arc::new(answer)));
                    wait
                }
                Err(away) => {
                    ready.close(away.text.clone());
                    if fault.as_ref() != Some(&away.text) {
                        tracing::warn!(fault = %away.text, "the broker does not answer; nodes and load balancers stay as they are");
                        fault = Some(away.text);
                    }
                    let wait = retry;
                    retry = (retry * 2).min(USUAL);
                    wait
                }
            };
            let answered = fault.is_none();
            let next = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    // Another call found nobody there: from now on it is asked until somebody is.
                    () = self.shared.silence.notified(), if answered => {}
                }
            };
            if stop.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    }
}

fn greet(answer: &DescribeResponse) {
    tracing::info!(
        cluster = %answer.cluster,
        identity = %answer.identity,
        cluster_uid = %answer.cluster_uid,
        broker_version = %answer.broker_version,
        cloud_version = %answer.cloud_version,
        "the broker answers"
    );
}

fn speaks_ours(answer: &DescribeResponse) -> Result<(), String> {
    let (min, max) = (answer.contract_min, answer.contract_max);
    if (min..=max).contains(&CONTRACT_VERSION) {
        return Ok(());
    }
    Err(format!(
        "the broker speaks versions {min} to {max} of the contract and this agent version {CONTRACT_VERSION}: update the older one"
    ))
}

fn refresh(answer: &DescribeResponse) -> Duration {
    let told = answer
        .refresh_interval
        .and_then(|interval| Duration::try_from(interval).ok());
    told.filter(|interval| !interval.is_zero())
        .unwrap_or(USUAL)
        .clamp(SHORTEST, LONGEST)
}

/// The broker's findings, and what only the agent can see.
fn lines(answer: &DescribeResponse, now: Duration) -> BTreeSet<Line> {
    let mut lines: BTreeSet<Line> = answer
        .findings
        .iter()
        .map(|finding| Line {
            severity: finding.severity,
            reason: finding.reason.clone(),
            object: finding.object.clone(),
            text: finding.text.clone(),
        })
        .collect();
    let mut own = |severity: Severity, reason: &str, text: String| {
        lines.insert(Line {
            severity: severity.into(),
            reason: reason.to_owned(),
            object: "broker".to_owned(),
            text,
        });
    };
    if let Err(text) = speaks_ours(answer) {
        own(Severity::Error, "CONTRACT_TOO_FAR_APART", text);
    }
    let here = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if answer
        .server_time
        .is_some_and(|there| (there.seconds - here).abs() > CLOCKS_APART)
    {
        let text =
            "the clocks of broker and agent are more than half a minute apart: check NTP on both machines";
        own(Severity::Warning, "CLOCKS_APART", text.to_owned());
    }
    lines
}

fn tell(now: BTreeSet<Line>, before: &BTreeSet<Line>) -> BTreeSet<Line> {
    for Line {
        severity,
        reason,
        object,
        text,
    } in now.difference(before)
    {
        match Severity::try_from(*severity).unwrap_or_default() {
            Severity::Error => tracing::error!(%reason, %object, "finding: {text}"),
            Severity::Warning => tracing::warn!(%reason, %object, "finding: {text}"),
            Severity::Info | Severity::Unspecified => tracing::info!(%reason, %object, "finding: {text}"),
        }
    }
    for Line { reason, object, .. } in before.difference(&now) {
        tracing::info!(%reason, %object, "a finding is gone");
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1::Finding;
    use rstest::rstest;

    fn answer() -> DescribeResponse {
        DescribeResponse {
            contract_min: 1,
            contract_max: 1,
            ..DescribeResponse::default()
        }
    }

    #[rstest]
    #[case::silent(None, 30)]
    #[case::told(Some(7), 7)]
    #[case::never_zero(Some(0), 30)]
    #[case::too_seldom(Some(86_400), 600)]
    fn the_broker_says_how_often_to_ask(#[case] seconds: Option<i64>, #[case] expected: u64) {
        let refresh_interval = seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
        assert_eq!(
            refresh(&DescribeResponse {
                refresh_interval,
                ..answer()
            }),
            Duration::from_secs(expected)
        );
    }

    #[test]
    fn a_contract_too_far_apart_is_a_finding_and_says_who_is_older() {
        let newer = DescribeResponse {
            contract_min: 2,
            contract_max: 3,
            ..answer()
        };
        assert!(speaks_ours(&newer).is_err());
        assert!(
            lines(&newer, Duration::ZERO)
                .iter()
                .any(|line| line.reason == "CONTRACT_TOO_FAR_APART")
        );
        assert!(lines(&answer(), Duration::ZERO).is_empty());
    }

    #[test]
    fn clocks_apart_are_a_finding() {
        let server_time = Some(prost_types::Timestamp {
            seconds: 1000,
            nanos: 0,
        });
        let answer = DescribeResponse {
            server_time,
            ..answer()
        };
        assert!(lines(&answer, Duration::from_mins(17)).is_empty());
        assert_eq!(lines(&answer, Duration::from_secs(1040)).len(), 1);
    }

    #[test]
    fn a_finding_is_told_once_while_it_stays() {
        let finding = Finding {
            severity: 2,
            reason: "X".into(),
            object: "network a".into(),
            text: "no".into(),
        };
        let answer = DescribeResponse {
            findings: vec![finding],
            ..answer()
        };
        let told = tell(lines(&answer, Duration::ZERO), &BTreeSet::new());
        assert_eq!(told.difference(&told).count(), 0);
        assert_eq!(told.len(), 1);
    }
}
