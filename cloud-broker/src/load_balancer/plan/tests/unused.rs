//! What is given back of addresses that were taken for a wish that the cloud refuses.

use super::super::give_back;
use super::*;
use crate::load_balancer::ownership::job_id;

#[rstest]
#[case::nobody_was_sent_there(&[], "", 1)]
#[case::another_one_is_published(&[[192, 0, 2, 8]], "", 1)]
#[case::clients_are_sent_there(&[[192, 0, 2, 7]], "", 0)]
#[case::it_is_asked_for(&[], "192.0.2.7", 0)]
fn an_address_without_a_rule_is_given_back_only_if_nobody_was_told_about_it(
    #[case] published: &[[u8; 4]],
    #[case] requested: &str,
    #[case] expected: usize,
) {
    let mut request = serve(&[(80, 30080)], |wish| {
        wish.requested_address = requested.to_owned();
    });
    request.published = published.iter().copied().map(IpAddr::from).collect();
    // Taken for the Service this minute; somebody has deleted its rules since, if it ever had any.
    let mut seen = seen(&[], false);
    seen.addresses[0].allocated = Timestamp::parse(NOW);
    let taken = JobView::Succeeded {
        address: AddressId::parse("ip").ok(),
        allocated: Timestamp::parse(NOW),
    };
    let job = job_id(&request.identity, &seen.addresses[0].id, 0);
    seen.jobs.insert(job, taken);
    let mut released = 0;
    loop {
        let plan = give_back(&request, &seen);
        if plan.needs.is_empty() {
            let is_release = |step: &&super::super::Planned| matches!(step.step, Step::Release { .. });
            released += plan.steps.iter().filter(is_release).count();
            break;
        }
        plan.needs.iter().for_each(|need| look(need, &mut seen));
    }
    assert_eq!(released, expected);
}
