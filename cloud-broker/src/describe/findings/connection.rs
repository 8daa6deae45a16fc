//! Findings about the way to the API: keys, address, certificates, clocks, rate. Pure.

use std::time::Duration;

use super::{Certificate, Facts, Finding, Severity, finding};
use crate::cloudstack::{ApiError, BreakerState};

/// A clock that is off by more may break signatures.
const SKEW: i64 = 60;
/// A certificate that ends sooner is a finding.
const SOON: Duration = Duration::from_hours(14 * 24);
/// A refusal for the rate is a finding for so long.
const LATELY: Duration = Duration::from_mins(10);

/// Findings about the way to the API.
pub(super) fn of(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let api = format!("API {}", facts.url);
    match facts.failure {
        Some(error) => findings.push(failure(facts, &api, error)),
        None if facts.breaker != BreakerState::Closed => {
            let text = format!("calls are held back because the last ones got no answer; {AWAY}");
            findings.push(finding(Severity::Error, "API_UNREACHABLE", &api, text));
        }
        None => {}
    }
    if facts.skip_verification && facts.url.scheme() == "https" {
        let text = "its certificate is not verified (ssl-no-verify), so anybody in between can take the keys; use ca-file";
        findings.push(finding(Severity::Warning, "CERTIFICATE_NOT_VERIFIED", &api, text));
    }
    if facts.url.scheme() == "http" {
        let text =
            "it is spoken to without TLS, so anybody in between can change answers; use an https address";
        findings.push(finding(Severity::Info, "NO_TLS", &api, text));
    }
    if facts.clock_offset.abs() >= SKEW {
        let (side, by) = (
            if facts.clock_offset > 0 {
                "ahead of"
            } else {
                "behind"
            },
            // In minutes: texts that change with every look are told with every look.
            (facts.clock_offset.abs() + SKEW / 2) / SKEW,
        );
        let text = format!(
            "its clock is {by} min {side} this machine's; signatures are corrected for it, mend the clock that is wrong"
        );
        findings.push(finding(Severity::Warning, "CLOCK_OFF", &api, text));
    }
    if facts.throttled.is_some_and(|ago| ago < LATELY) {
        let text = "it refused calls because the account made too many; other tools with keys of this account (storage \
                    driver, autoscaler, Terraform) count as well: give them an account of their own, lower \
                    api-rate-limit-qps, or let the limit be raised";
        findings.push(finding(Severity::Warning, "RATE_LIMIT_HIT", &api, text));
    }
    findings.extend(
        facts
            .certificates
            .iter()
            .filter_map(|used| certificate(used, facts.now)),
    );
}

/// Why nothing can be asked of the cloud.
fn failure(facts: &Facts<'_>, api: &str, error: &ApiError) -> Finding {
    match error {
        ApiError::BadCredentials(_) => {
            let text = format!(
                "{error}; set api-key and secret-key of cluster {}",
                facts.tenant.cluster
            );
            finding(Severity::Error, "KEYS_REFUSED", api, text)
        }
        ApiError::Unreachable { .. } | ApiError::Odd { .. } => finding(
            Severity::Error,
            "API_UNREACHABLE",
            api,
            format!("{error}; {}", remedy(error)),
        ),
        ApiError::Denied(refusal) if facts.tenant.scope.project.is_some() => {
            let project = facts.tenant.scope.project.as_ref().map_or("", |id| id.as_str());
            let text = format!(
                "{refusal}; the keys' user is no member of the project, or its role may not call this: check project-id"
            );
            finding(
                Severity::Error,
                "PROJECT_NOT_VISIBLE",
                format!("project {project}"),
                text,
            )
        }
        ApiError::Rejected(_)
        | ApiError::Gone(_)
        | ApiError::Denied(_)
        | ApiError::Throttled { .. }
        | ApiError::Busy(_)
        | ApiError::Conflict(_)
        | ApiError::Limit(_)
        | ApiError::NoCapacity(_)
        | ApiError::JobFailed { .. }
        | ApiError::JobLost { .. }
        | ApiError::Rekeyed { .. }
        | ApiError::Stopping { .. } => finding(Severity::Error, "API_REFUSES", api, error.to_string()),
    }
}

fn certificate(used: &Certificate, now: i64) -> Option<Finding> {
    let left = used.not_after.saturating_sub(now);
    let object = format!("certificate of {}", used.of);
    if left <= 0 {
        return Some(finding(
            Severity::Error,
            "CERTIFICATE_OVER",
            object,
            "it is not valid any more; renew it",
        ));
    }
    let is_soon = left < i64::try_from(SOON.as_secs()).unwrap_or(i64::MAX);
    let text = match left / (24 * 3600) {
        0 => "it ends within a day; renew it".to_owned(),
        days => format!("it ends within {} days; renew it", days + 1),
    };
    is_soon.then(|| finding(Severity::Warning, "CERTIFICATE_SOON_OVER", object, text))
}

/// What to look at when nothing says more.
const AWAY: &str = "check api-url, the network in between and the management server";

/// What to do about an API that does not answer, as far as the text tells.
fn remedy(error: &ApiError) -> &'static str {
    let text = error.to_string().to_lowercase();
    if text.contains("certificate") || text.contains("unknownissuer") {
        "put the authority that signed the API's certificate into ca-file, and check the host name in api-url"
    } else if matches!(error, ApiError::Odd { .. }) || text.contains("html") || text.contains("404") {
        "check api-url: it ends in /client/api as a rule"
    } else if text.contains("dns") || text.contains("resolve") || text.contains("lookup") {
        "check the host name in api-url and the name service"
    } else {
        AWAY
    }
}
