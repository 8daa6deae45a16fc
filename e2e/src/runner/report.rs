//! What a run prints at its end.

use std::collections::BTreeMap;

use super::{Job, Layer, Outcome};
use crate::cloud::Kind;
use crate::settings::Settings;

/// Prints failures and counts; true if nothing failed and nothing was skipped that should have run.
pub(super) fn conclude(settings: &Settings, results: &[(Job, Outcome)]) -> bool {
    let mut counts: BTreeMap<(Layer, Kind), [usize; 3]> = BTreeMap::new();
    let mut unexcused = 0;
    for (job, outcome) in results {
        let [passed, failed, skipped] = counts.entry((job.scenario.layer, job.kind)).or_default();
        match outcome {
            Outcome::Passed => *passed += 1,
            Outcome::Skipped(skip) => {
                *skipped += 1;
                unexcused += usize::from(!skip.excused);
            }
            Outcome::Failed(why) => {
                *failed += 1;
                say(&format!("\n==== {}\n{why}", job.title()));
            }
        }
    }
    let mut failures = 0;
    say("");
    for ((layer, kind), [passed, failed, skipped]) in &counts {
        let text = match layer {
            Layer::Pool => "pool scenarios, the agent alone".to_owned(),
            Layer::Control | Layer::Data | Layer::Fault => format!("{layer} scenarios on {kind}"),
        };
        say(&format!(
            "{text:<32} {passed} passed, {failed} failed, {skipped} skipped"
        ));
        failures += failed;
    }
    let strict = settings.shared("cloudstack").is_some();
    if strict && unexcused > 0 {
        say("skipping is a failure here, because a real CloudStack is there (E2E_SHARED)");
    }
    failures == 0 && !(strict && unexcused > 0)
}

#[expect(clippy::print_stdout, reason = "a test runner reports on standard output")]
pub(super) fn say(line: &str) {
    println!("{line}");
}
