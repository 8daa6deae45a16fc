//! ACL items whose mark names the Service and no cluster, while somebody else has rules for it.

use super::*;
use crate::tenant::NameOrId;

/// Who else has rules for the Service.
#[derive(Clone, Copy, PartialEq)]
enum Dispute {
    /// A cluster with a UID.
    AnotherCluster,
    /// Somebody outside the fence, whose mark names no cluster either.
    AMarkOutsideTheFence,
    /// Somebody outside the fence by name, and names are not taken over.
    ANameOutsideTheFence,
}

/// A Service of a cluster without a UID in a tier with its own list, and rules of somebody else on another address.
fn disputed(mut request: Request, dispute: Dispute) -> (Request, Observation) {
    request.identity.uids = ClusterUids::default();
    request.identity.take_over = dispute != Dispute::ANameOutsideTheFence;
    request.identity.fence.networks = vec![NameOrId::new("net")];
    request.scope = request.identity.fence.clone();
    let own = mark(UID, AddressWord::Own).replace("cluster=c1", "cluster=-");
    let mut other = rule(9000, "", "Active");
    other["publicipid"] = json!("elsewhere");
    other["publicip"] = json!("192.0.2.8");
    match dispute {
        Dispute::AnotherCluster => other["description"] = json!(format!("kcs1 cluster=zz service={UID}")),
        Dispute::AMarkOutsideTheFence => {
            other["description"] = json!(format!("kcs1 cluster=- service={UID}"));
            other["networkid"] = json!("green");
        }
        Dispute::ANameOutsideTheFence => other["networkid"] = json!("green"),
    }
    let mut seen = seen(&[rule(80, &own, "Active"), other], false);
    seen.networks = vec![entity(&json!({
        "id": "net", "name": "k8s", "type": "Isolated", "state": "Implemented", "vpcid": "vpc", "aclid": "list",
        "aclname": "ours", "service": [{ "name": "Lb" }, { "name": "NetworkACL" }],
    }))];
    seen.addresses = vec![entity(&json!({
        "id": "ip", "ipaddress": "192.0.2.7", "state": "Allocated", "allocated": LONG_AGO, "associatednetworkid": "net",
        "vpcid": "vpc",
    }))];
    (request, seen)
}

fn numbers(seen: &Observation) -> Vec<u32> {
    let items = seen.acl.values().flatten();
    items.filter_map(|item| item.number).collect()
}

#[rstest]
fn without_a_uid_an_acl_item_is_made_once_and_named_at_the_end(
    #[values(
        Dispute::AnotherCluster,
        Dispute::AMarkOutsideTheFence,
        Dispute::ANameOutsideTheFence
    )]
    dispute: Dispute,
) {
    let (request, mut seen) = disputed(serve(&[(80, 30080)], |_| {}), dispute);
    let (rounds, end) = carry_out(&request, &mut seen, |_, _| {});
    assert!(matches!(end, End::Served(_)), "{rounds:#?} {end:?}");
    assert_eq!(numbers(&seen), [1]);
    let (again, _) = carry_out(&request, &mut seen, |_, _| {});
    assert!(again.is_empty(), "{again:#?}");
    // Nothing proves that the item is the Service's, so it stays, and that is said.
    let (request, _) = disputed(leave(false), dispute);
    let (_, end) = carry_out(&request, &mut seen, |_, _| {});
    assert!(matches!(end, End::Departed), "{end:?}");
    assert_eq!((numbers(&seen), on_address(&seen)), (vec![1], vec![]));
    let plan = next(&request, &mut seen);
    let [note] = plan.notes.as_slice() else {
        panic!("{:#?}", plan.notes)
    };
    assert_eq!(note.reason, "AclKept");
    for said in ["acl list list", "number 1"] {
        assert!(note.text.contains(said), "{said}: {}", note.text);
    }
}

#[test]
fn an_acl_item_that_nobody_disputes_goes_without_a_word() {
    let (request, mut seen) = disputed(serve(&[(80, 30080)], |_| {}), Dispute::AnotherCluster);
    seen.rules.pop();
    carry_out(&request, &mut seen, |_, _| {});
    assert_eq!(numbers(&seen), [1]);
    let (request, _) = disputed(leave(false), Dispute::AnotherCluster);
    carry_out(&request, &mut seen, |_, _| {});
    assert_eq!(numbers(&seen), Vec::<u32>::new());
    let notes = next(&request, &mut seen).notes;
    assert!(notes.iter().all(|note| note.reason != "AclKept"), "{notes:#?}");
}
