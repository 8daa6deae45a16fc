//! Dry runs and reports: the same plan, and nothing done.

use std::time::Duration;

use proto::Fault;

use super::failure::unread;
use super::look::{Ages, Looker};
use super::observation::{JobView, Observation};
use super::outcome::Note;
use super::plan::{Answered, End, Planned, Request, Step, plan};
use super::run::{FRESH, MACHINES, MOST_ROUNDS};

/// What a plan would do.
#[derive(Debug, Default)]
pub(super) struct Preview {
    pub(super) steps: Vec<Planned>,
    pub(super) notes: Vec<Note>,
    pub(super) refused: Option<String>,
    pub(super) consent: Option<String>,
}

/// What would be done.
pub(super) async fn preview(
    looker: &Looker<'_>,
    request: &Request,
    drift: Duration,
) -> Result<Preview, Fault> {
    let ages = ages(drift);
    let mut seen = looker.observe(&request.goal, ages).await.map_err(unread)?;
    let mut preview = Preview::default();
    for _ in 0..MOST_ROUNDS {
        let plan = plan(request, &seen);
        for note in plan
            .notes
            .iter()
            .filter(|note| !preview.notes.contains(note))
            .cloned()
            .collect::<Vec<_>>()
        {
            preview.notes.push(note);
        }
        if let End::Refused(fault) = plan.end {
            preview.refused = Some(fault.text);
            preview.consent = plan.consent;
            preview.steps.extend(plan.steps);
            break;
        }
        if !plan.needs.is_empty() {
            looker
                .satisfy(&plan.needs, &request.goal, ages, &mut seen)
                .await
                .map_err(unread)?;
            continue;
        }
        if let End::Wait(wait) = &plan.end {
            preview.refused = Some(wait.text.clone());
        }
        let round = plan.next_round();
        if round.is_empty() {
            break;
        }
        for planned in round {
            pretend(planned, preview.steps.len(), &mut seen);
            preview.steps.push(planned.clone());
        }
    }
    Ok(preview)
}

fn ages(drift: Duration) -> Ages {
    let now = runtime::clock::now();
    let before = |age: Duration| now.checked_sub(age).unwrap_or(now);
    Ages {
        oldest: before(FRESH),
        oldest_membership: before(drift),
        machines: MACHINES,
    }
}

/// Folds a step in as if it had succeeded.
fn pretend(planned: &Planned, number: usize, seen: &mut Observation) {
    let answered = Answered {
        id: Some(format!("planned-{number}")),
        ..Answered::default()
    };
    for change in planned.step.effect(&answered, seen) {
        seen.apply(&change);
    }
    if let Step::Associate { address, request } = &planned.step {
        seen.fresh.insert(address.clone());
        let allocated = seen.address(address).and_then(|address| address.allocated);
        seen.jobs.insert(
            request.job.clone(),
            JobView::Succeeded {
                address: Some(address.clone()),
                allocated,
            },
        );
    }
}

/// What a report needs: the shared lists, and the members as far as they are known.
pub(super) async fn look_for_report(looker: &Looker<'_>, drift: Duration) -> Result<Observation, Fault> {
    looker.observe_lists(ages(drift)).await.map_err(unread)
}
