//! What is written on a Service: finalizer, status, condition and output annotations, as patches of its status.
//!
//! Pure. Every patch goes through `services/status` as a strategic merge patch, finalizers and annotations included: that is
//! the one right on Services beyond reading that a controller needs. A patch names only what differs, and nothing differs
//! means no patch. Each one carries the Service's UID, so that it can't land on another Service that took the name, and
//! takes single finalizers out of their list, so that what others add meanwhile stays.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value, json};

use super::annotations::{ID, IP_ASSOCIATED, NETWORK_ID, SERVED_BY, outputs_of};
use super::backend::{BackendName, Outputs, Reached};
use super::choice::class_of;
use super::intent::{Ending, FINALIZER, has_finalizer};
use super::texts::essence;

/// Type of the condition that says whether a load balancer is what its Service asks for. It is only written where there
/// was something to say; no condition means the same as a true one.
pub const CONDITION: &str = "LoadBalancerReady";
/// Mode of an address whose packets the nodes may take a short cut for.
const VIP: &str = "VIP";
/// Mode of an address whose packets must pass the load balancer.
const PROXY: &str = "Proxy";

/// What a Service that is served should show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Where clients reach it.
    pub ingress: Vec<Reached>,
    /// Host name in place of the addresses.
    pub hostname: Option<String>,
    /// Facts for the output annotations.
    pub outputs: Option<Outputs>,
    /// Who serves it, where that is to be recorded.
    pub served_by: Option<BackendName>,
}

/// Why a load balancer is not what its Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word, as conditions want it: `BrokerUnreachable`.
    pub reason: String,
    /// For people; the same trouble has the same text each time.
    pub text: String,
}

/// Whether the API server keeps `ipMode`. Before 1.30 it drops the field by default, and writing it again is in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpModes {
    /// It does, or nobody has seen it drop one.
    Kept,
    /// It was seen to drop one.
    Dropped,
}

/// Adds our finalizer, if it is missing.
pub fn claim(service: &Service) -> Option<Value> {
    if has_finalizer(service) {
        return None;
    }
    let mut metadata = guarded(service);
    metadata.insert("finalizers".to_owned(), json!([FINALIZER]));
    let mut order = finalizers(service);
    if !order.is_empty() {
        order.push(FINALIZER);
        metadata.insert("$setElementOrder/finalizers".to_owned(), json!(order));
    }
    Some(json!({ "metadata": metadata }))
}

/// Shows what was made. Where it is not all that the Service asks for, the condition says why.
pub fn settled(
    service: &Service,
    shown: &Shown,
    trouble: Option<&Trouble>,
    ip_modes: IpModes,
    now: &Time,
) -> Option<Value> {
    let mut patch = Patch::of(service);
    let wanted = ingress_of(shown);
    let new_ingress = !same_ingress(stored_ingress(service), &wanted, ip_modes);
    if new_ingress {
        patch.ingress(&wanted);
    }
    let condition = match (trouble, stored_condition(service)) {
        (Some(trouble), _) => unwell(service, trouble, now),
        (None, Some(condition)) if condition.status != "True" => Some(well(now)),
        (None, None) if new_ingress => Some(well(now)),
        (None, Some(_) | None) => None,
    };
    if let Some(condition) = &condition {
        patch.condition(condition);
    }
    patch.annotations(shown.outputs.as_ref(), shown.served_by);
    patch.finish()
}

/// Says what is wrong. The status of an address that still serves is left as it is.
pub fn troubled(service: &Service, trouble: &Trouble, now: &Time) -> Option<Value> {
    let mut patch = Patch::of(service);
    patch.condition(&unwell(service, trouble, now)?);
    patch.finish()
}

/// Whether our condition is there.
pub fn has_condition(service: &Service) -> bool {
    stored_condition(service).is_some()
}

/// Takes our condition from a Service that is nothing to us any more.
pub fn forgotten(service: &Service) -> Option<Value> {
    let mut patch = Patch::of(service);
    patch.drop_condition();
    patch.finish()
}

/// Lets a Service go whose load balancer is gone.
pub fn released(service: &Service, ending: Ending) -> Option<Value> {
    let mut patch = Patch::of(service);
    if has_finalizer(service) {
        patch.drop_finalizer();
    }
    match ending {
        Ending::Deleted | Ending::TypeChanged => {
            if !stored_ingress(service).is_empty() {
                patch
                    .status
                    .insert("loadBalancer".to_owned(), json!({ "ingress": null }));
            }
            patch.drop_condition();
        }
        // The status is another controller's, or there is no Service any more.
        Ending::ClassChanged | Ending::Vanished => {}
    }
    patch.annotations(None, None);
    patch.leave(written_by_another(service, ending));
    patch.finish()
}

/// Output annotations that the process of our other backend writes: the Service moved to its class.
fn written_by_another(service: &Service, ending: Ending) -> &'static [&'static str] {
    class_of(service)
        .filter(|_| ending == Ending::ClassChanged)
        .and_then(BackendName::of_class)
        .map_or(&[], outputs_of)
}

/// Whether an API server that was given a patch dropped the `ipMode` in it.
pub fn drops_ip_modes(answer: &Service, shown: &Shown) -> bool {
    let (stored, wanted) = (stored_ingress(answer), ingress_of(shown));
    !same_ingress(stored, &wanted, IpModes::Kept) && same_ingress(stored, &wanted, IpModes::Dropped)
}

fn ingress_of(shown: &Shown) -> Vec<LoadBalancerIngress> {
    if shown.ingress.is_empty() {
        return Vec::new();
    }
    if let Some(hostname) = &shown.hostname {
        return vec![LoadBalancerIngress {
            hostname: Some(hostname.clone()),
            ..Default::default()
        }];
    }
    let mode = |reached: &Reached| if reached.proxy { PROXY } else { VIP };
    shown
        .ingress
        .iter()
        .map(|reached| LoadBalancerIngress {
            ip: Some(reached.ip.clone()),
            ip_mode: Some(mode(reached).to_owned()),
            ..Default::default()
        })
        .collect()
}

/// Whether two lists show the same, in the same order. An address without a mode has the mode `VIP`.
pub fn same_ingress(
    stored: &[LoadBalancerIngress],
    wanted: &[LoadBalancerIngress],
    ip_modes: IpModes,
) -> bool {
    stored.len() == wanted.len()
        && stored.iter().zip(wanted).all(|(stored, wanted)| {
            stored.ip == wanted.ip
                && stored.hostname == wanted.hostname
                && (ip_modes == IpModes::Dropped || mode(stored) == mode(wanted))
                && stored.ports.as_deref().unwrap_or_default() == wanted.ports.as_deref().unwrap_or_default()
        })
}

fn mode(ingress: &LoadBalancerIngress) -> &str {
    ingress.ip_mode.as_deref().unwrap_or(VIP)
}

fn stored_ingress(service: &Service) -> &[LoadBalancerIngress] {
    service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

fn stored_condition(service: &Service) -> Option<&Condition> {
    service
        .status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == CONDITION)
}

fn finalizers(service: &Service) -> Vec<&str> {
    service
        .metadata
        .finalizers
        .iter()
        .flatten()
        .map(String::as_str)
        .collect()
}

fn well(now: &Time) -> Condition {
    Condition {
        type_: CONDITION.to_owned(),
        status: "True".to_owned(),
        reason: "Ready".to_owned(),
        message: String::new(),
        last_transition_time: now.clone(),
        observed_generation: None,
    }
}

/// The condition that says what is wrong; nothing if it is there. Times in the text make no difference.
fn unwell(service: &Service, trouble: &Trouble, now: &Time) -> Option<Condition> {
    let stored = stored_condition(service).filter(|stored| stored.status == "False");
    if stored.is_some_and(|stored| {
        stored.reason == trouble.reason && essence(&stored.message) == essence(&trouble.text)
    }) {
        return None;
    }
    let since = stored.map_or(now, |stored| &stored.last_transition_time);
    Some(Condition {
        type_: CONDITION.to_owned(),
        status: "False".to_owned(),
        reason: trouble.reason.clone(),
        message: trouble.text.clone(),
        last_transition_time: since.clone(),
        observed_generation: None,
    })
}

fn guarded(service: &Service) -> Map<String, Value> {
    service
        .metadata
        .uid
        .iter()
        .map(|uid| ("uid".to_owned(), json!(uid)))
        .collect()
}

/// A patch that grows only by what differs.
struct Patch<'a> {
    service: &'a Service,
    metadata: Map<String, Value>,
    status: Map<String, Value>,
}

impl<'a> Patch<'a> {
    fn of(service: &'a Service) -> Self {
        Self {
            service,
            metadata: Map::new(),
            status: Map::new(),
        }
    }

    fn ingress(&mut self, wanted: &[LoadBalancerIngress]) {
        let list = if wanted.is_empty() {
            Value::Null
        } else {
            json!(wanted)
        };
        self.status
            .insert("loadBalancer".to_owned(), json!({ "ingress": list }));
    }

    fn condition(&mut self, condition: &Condition) {
        self.status.insert("conditions".to_owned(), json!([condition]));
    }

    fn drop_condition(&mut self) {
        if has_condition(self.service) {
            self.status.insert(
                "conditions".to_owned(),
                json!([{ "type": CONDITION, "$patch": "delete" }]),
            );
        }
    }

    fn drop_finalizer(&mut self) {
        let others: Vec<_> = finalizers(self.service)
            .into_iter()
            .filter(|name| *name != FINALIZER)
            .collect();
        self.metadata.insert(
            "$deleteFromPrimitiveList/finalizers".to_owned(),
            json!([FINALIZER]),
        );
        if !others.is_empty() {
            self.metadata
                .insert("$setElementOrder/finalizers".to_owned(), json!(others));
        }
    }

    /// Makes the output annotations say this and nothing else.
    fn annotations(&mut self, outputs: Option<&Outputs>, served_by: Option<BackendName>) {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let wanted = [
            (ID, outputs.and_then(|outputs| text(&outputs.address_id))),
            (NETWORK_ID, outputs.and_then(|outputs| text(&outputs.network_id))),
            (
                IP_ASSOCIATED,
                outputs
                    .filter(|outputs| outputs.address_owned)
                    .map(|_| "true".to_owned()),
            ),
            (SERVED_BY, served_by.map(|name| name.word().to_owned())),
        ];
        let stored = self.service.metadata.annotations.as_ref();
        let differing: Map<String, Value> = wanted
            .into_iter()
            .filter(|(name, value)| stored.and_then(|stored| stored.get(*name)) != value.as_ref())
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        if !differing.is_empty() {
            self.metadata
                .insert("annotations".to_owned(), Value::Object(differing));
        }
    }

    /// Takes annotations out of the patch.
    fn leave(&mut self, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        if let Some(Value::Object(annotations)) = self.metadata.get_mut("annotations") {
            annotations.retain(|name, _| !names.contains(&name.as_str()));
            if annotations.is_empty() {
                self.metadata.remove("annotations");
            }
        }
    }

    fn finish(self) -> Option<Value> {
        if self.metadata.is_empty() && self.status.is_empty() {
            return None;
        }
        let mut metadata = guarded(self.service);
        metadata.extend(self.metadata);
        let mut patch = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
        if !self.status.is_empty() {
            patch.insert("status".to_owned(), Value::Object(self.status));
        }
        Some(Value::Object(patch))
    }
}

#[cfg(test)]
mod tests;
