//! Who is added and who leaves.

use super::*;

// Nodes: a machine, `?` for an unresolved one, `-` for a machine that is proved gone.
#[rstest]
#[case::one_more("m1 m2", "m1", "m2", "")]
#[case::one_less("m1", "m1 m2", "", "m2")]
#[case::one_unresolved("m1 ?n2", "m1 m2", "", "")]
#[case::one_unresolved_and_one_gone("m1 ?n2 -m3", "m2 m3", "m1", "m3")]
#[case::nobody("", "m1", "", "")]
#[case::only_gone("-m1", "m1 m2", "", "m1")]
#[case::not_visible("m1 m9", "m1 m9", "", "")]
#[case::elsewhere("m1 far", "m1", "", "")]
fn what_is_done_about_members(
    #[case] nodes: &str,
    #[case] present: &str,
    #[case] missing: &str,
    #[case] surplus: &str,
) {
    use v1::wish_member::Machine as Of;
    let mut seen = seen();
    let here = ["m1", "m2", "m3"].map(|id| machine(id, &[("net", true)], "Running"));
    let far = machine("far", &[("other", true)], "Running");
    seen.machines = here
        .into_iter()
        .chain([far])
        .map(|machine| (machine.id.clone(), machine))
        .collect();
    let wish = wish(&[], |wish| {
        wish.members = nodes
            .split_whitespace()
            .map(|node| match (node.strip_prefix('?'), node.strip_prefix('-')) {
                (Some(name), _) => (name, Of::Unresolved(true)),
                (None, Some(id)) => (id, Of::GoneMachineId(id.to_owned())),
                (None, None) => (node, Of::MachineId(node.to_owned())),
            })
            .map(|(name, of)| v1::WishMember {
                node_name: name.to_owned(),
                machine: Some(of),
            })
            .collect();
    });
    let (wanted, _) = WantedMembers::of(&wish, &Scope::default(), &network(&json!({})), &seen);
    let ids = |list: &str| {
        list.split_whitespace()
            .map(|id| MachineId::parse(id).unwrap())
            .collect::<Vec<_>>()
    };
    let difference = wanted.difference(&ids(present).into_iter().collect());
    assert_eq!(
        (difference.missing, difference.surplus),
        (ids(missing), ids(surplus))
    );
}

#[rstest]
#[case::running(&["m1"], "Running", true)]
#[case::stopped(&["m1"], "Stopped", false)]
#[case::one_stays(&["m1", "m2"], "Running", false)]
#[case::empty(&[], "Running", false)]
fn running_members_that_nobody_claims_are_not_all_replaced(
    #[case] present: &[&str],
    #[case] state: &str,
    #[case] held: bool,
) {
    let mut seen = seen();
    let all = [
        machine("m1", &[("net", true)], state),
        machine("m2", &[("net", true)], "Running"),
    ];
    seen.machines = all
        .into_iter()
        .map(|machine| (machine.id.clone(), machine))
        .collect();
    let (wanted, _) = WantedMembers::of(
        &wish(&["m2"], |_| {}),
        &Scope::default(),
        &network(&json!({})),
        &seen,
    );
    let present: BTreeSet<MachineId> = present.iter().map(|id| MachineId::parse(id).unwrap()).collect();
    assert_eq!(wanted.replaced_wholesale(&present, &seen).is_some(), held);
}
