//! How changes show in what was seen.

use super::*;

#[test]
fn a_release_takes_with_it_what_was_on_the_address_and_nothing_else() {
    let mut seen = seen();
    seen.rules = vec![rule("r1", "x", "", "ip"), rule("r2", "x", "", "other")];
    seen.addresses = vec![address("ip", None), address("other", None)];
    seen.apply(&Change::AddressGone(AddressId::parse("ip").unwrap()));
    assert_eq!(
        seen.rules.iter().map(|rule| rule.id.as_str()).collect::<Vec<_>>(),
        ["r2"]
    );
    assert_eq!(seen.addresses.len(), 1);
}

#[test]
fn members_that_are_read_leave_the_state_of_a_rule_and_members_that_change_set_it() {
    let mut seen = seen();
    seen.rules = vec![rule("r1", "x", "", "ip")];
    let id = seen.rules[0].id.clone();
    seen.apply(&Change::Members(id.clone(), BTreeSet::new()));
    assert_eq!(seen.rules[0].state, RuleState::Add);
    seen.apply(&Change::Members(
        id,
        BTreeSet::from([MachineId::parse("m1").unwrap()]),
    ));
    assert_eq!(seen.rules[0].state, RuleState::Active);
}
