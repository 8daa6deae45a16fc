//! An API server in memory, for what a real one can't be made to do on command: refuse, conflict, forget, and show every
//! request. It knows lists, watches, creates, updates, patches (strategic ones with the few lists that controllers touch) and
//! deletions with finalizers of whatever kind a path names. Nothing is validated and nobody is authorised.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower::service_fn;

/// How long a test waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(20);

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// A request that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// What a rule says of a request: answer it with this status and message, without effect.
pub(crate) type Refusal = (u16, &'static str);

type Rule = Box<dyn FnMut(&Method, &str, &Value) -> Option<Refusal> + Send>;

/// The server. Clones share it.
#[derive(Clone)]
pub(crate) struct FakeApiServer {
    state: Arc<Mutex<State>>,
    /// Counts changes, to wait for them.
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Place, Value>,
    version: u64,
    /// Every change of every object, for watches that begin later.
    history: Vec<(u64, String, Value)>,
    watches: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    seen: Vec<Seen>,
    rules: Vec<Rule>,
    /// Fields of a Service's ingress that this server is too old to know.
    unknown_fields: Vec<&'static str>,
}

/// Collection, namespace (empty for kinds without) and name.
type Place = (String, String, String);

impl FakeApiServer {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            changes: Arc::new(watch::Sender::new(0)),
        }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        Client::new(
            service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            }),
            "default",
        )
    }

    /// Puts an object there as if somebody had created it.
    pub(crate) fn create(&self, collection: &str, mut object: Value) -> Value {
        let mut state = self.state.lock();
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(uuid::Uuid::new_v4().to_string());
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let stored = state.store(collection, "ADDED", object);
        drop(state);
        self.changed();
        stored
    }

    /// Changes an object as if somebody had done it.
    pub(crate) fn change(&self, collection: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock();
        let place = state
            .find(collection, name)
            .unwrap_or_else(|| panic!("no {collection} {name}"));
        let mut object = state.objects[&place].clone();
        change(&mut object);
        state.put(collection, object);
        drop(state);
        self.changed();
    }

    /// Deletes an object: at once, or by a deletion timestamp while finalizers hold it.
    pub(crate) fn delete(&self, collection: &str, name: &str) {
        let mut state = self.state.lock();
        let place = state
            .find(collection, name)
            .unwrap_or_else(|| panic!("no {collection} {name}"));
        state.delete(&place);
        drop(state);
        self.changed();
    }

    /// The object, if it is there.
    pub(crate) fn get(&self, collection: &str, name: &str) -> Option<Value> {
        let state = self.state.lock();
        let place = state.find(collection, name)?;
        state.objects.get(&place).cloned()
    }

    /// All objects of a collection.
    pub(crate) fn all(&self, collection: &str) -> Vec<Value> {
        let state = self.state.lock();
        state
            .objects
            .iter()
            .filter(|((kind, ..), _)| kind == collection)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Reasons of the events on an object, in the order in which they came. Repeated ones count once.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        self.event_objects(name)
            .iter()
            .map(|event| event["reason"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Texts of the events with a reason on an object.
    pub(crate) fn event_texts(&self, name: &str, reason: &str) -> Vec<String> {
        let events = self.event_objects(name);
        let texts = events.iter().filter(|event| event["reason"] == json!(reason));
        texts
            .map(|event| event["message"].as_str().unwrap().to_owned())
            .collect()
    }

    fn event_objects(&self, name: &str) -> Vec<Value> {
        let mut events = self.all("events");
        events.retain(|event| event["involvedObject"]["name"] == json!(name));
        events.sort_by_key(|event| {
            event["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        events
    }

    /// Every writing request so far whose path contains this, events left out.
    pub(crate) fn writes(&self, part: &str) -> Vec<Seen> {
        let state = self.state.lock();
        let writes = state
            .seen
            .iter()
            .filter(|seen| seen.method != Method::GET && !seen.path.contains("/events"));
        writes.filter(|seen| seen.path.contains(part)).cloned().collect()
    }

    /// Ends all rules.
    pub(crate) fn refuse_nothing(&self) {
        self.state.lock().rules.clear();
    }

    /// How many requests so far had a path that contains this.
    pub(crate) fn requests(&self, part: &str) -> usize {
        self.state
            .lock()
            .seen
            .iter()
            .filter(|seen| seen.path.contains(part))
            .count()
    }

    /// Adds a rule: requests for which it has a refusal are refused.
    pub(crate) fn refuse(&self, rule: impl FnMut(&Method, &str, &Value) -> Option<Refusal> + Send + 'static) {
        self.state.lock().rules.push(Box::new(rule));
    }

    /// Forgets this field of a Service's ingress from now on, as a server that is too old for it.
    pub(crate) fn drop_field(&self, field: &'static str) {
        self.state.lock().unknown_fields.push(field);
    }

    /// Waits until the condition holds, and answers what it found.
    pub(crate) async fn wait_for<T>(&self, what: &str, mut condition: impl FnMut(&Self) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = condition(self) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("did not happen: {what}\n{:#?}", self.state.lock().seen))
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body: Value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body).unwrap()
        };
        let target = Target::of(head.uri.path());
        let query: HashMap<String, String> =
            url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        if head.method == Method::GET && query.get("watch").is_some_and(|watch| watch == "true") {
            return self.watch(
                &target,
                query
                    .get("resourceVersion")
                    .map_or(0, |version| version.parse().unwrap_or(0)),
            );
        }
        let strategic = head.headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| {
            kind.to_str()
                .unwrap_or_default()
                .contains("strategic-merge-patch")
        });
        let (status, answer) = self.state.lock().serve(&head.method, &target, &body, strategic);
        let path = head.uri.path().to_owned();
        self.state.lock().seen.push(Seen {
            method: head.method,
            path,
            body,
        });
        self.changed();
        Response::builder()
            .status(status)
            .body(Full::from(answer.to_string()).boxed())
            .unwrap()
    }

    fn watch(&self, target: &Target, since: u64) -> Answer {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state.lock();
        for (version, kind, event) in &state.history {
            if *version > since && *kind == target.collection {
                let _ = sender.send(line(event));
            }
        }
        state.watches.push((target.collection.clone(), sender));
        let stream = futures::StreamExt::map(UnboundedReceiverStream::new(receiver), |bytes| {
            Ok(Frame::data(bytes))
        });
        Response::new(StreamBody::new(stream).boxed())
    }
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

/// What a path names.
struct Target {
    path: String,
    collection: String,
    namespace: String,
    name: Option<String>,
}

impl Target {
    fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        // api/v1/... or apis/GROUP/VERSION/...
        let rest = if parts[0] == "api" {
            &parts[2..]
        } else {
            &parts[3..]
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => ((*namespace).to_owned(), rest),
            rest => (String::new(), rest),
        };
        Self {
            path: path.to_owned(),
            collection: rest[0].to_owned(),
            namespace,
            name: rest.get(1).map(|name| (*name).to_owned()),
        }
    }

    fn place(&self) -> Place {
        (
            self.collection.clone(),
            self.namespace.clone(),
            self.name.clone().unwrap_or_default(),
        )
    }
}

fn refusal(status: u16, message: &str) -> (StatusCode, Value) {
    let reason = match status {
        404 => "NotFound",
        409 => "Conflict",
        403 => "Forbidden",
        422 => "Invalid",
        _ => "InternalError",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                      "reason": reason, "code": status});
    (StatusCode::from_u16(status).unwrap(), body)
}

impl State {
    fn serve(
        &mut self,
        method: &Method,
        target: &Target,
        body: &Value,
        strategic: bool,
    ) -> (StatusCode, Value) {
        if let Some((status, message)) = self
            .rules
            .iter_mut()
            .find_map(|rule| rule(method, &target.path, body))
        {
            return refusal(status, message);
        }
        let place = target.place();
        match (method.as_str(), &target.name) {
            ("GET", None) => (StatusCode::OK, self.list(target)),
            ("POST", None) => {
                let mut object = body.clone();
                object["metadata"]["namespace"] = json!(target.namespace);
                let place = (
                    target.collection.clone(),
                    target.namespace.clone(),
                    text(&object, "name"),
                );
                if self.objects.contains_key(&place) {
                    return refusal(409, "already exists");
                }
                object["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
                (
                    StatusCode::CREATED,
                    self.store(&target.collection, "ADDED", object),
                )
            }
            _ => {
                let Some(found) = self.objects.get(&place).cloned() else {
                    return refusal(404, "not found");
                };
                match method.as_str() {
                    "GET" => (StatusCode::OK, found),
                    "PUT" => self.replace(&target.collection, &found, body),
                    "PATCH" => self.patch(&target.collection, found, body, strategic),
                    "DELETE" => self.remove(&place, &found, body),
                    other => panic!("{other} {}", target.path),
                }
            }
        }
    }

    fn list(&self, target: &Target) -> Value {
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|((kind, namespace, _), _)| {
                *kind == target.collection && (target.namespace.is_empty() || *namespace == target.namespace)
            })
            .map(|(_, object)| object.clone())
            .collect();
        json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    fn replace(&mut self, collection: &str, found: &Value, body: &Value) -> (StatusCode, Value) {
        if is_old(found, body) {
            return refusal(409, "the object has been modified");
        }
        (StatusCode::OK, self.put(collection, body.clone()))
    }

    fn patch(
        &mut self,
        collection: &str,
        found: Value,
        body: &Value,
        strategic: bool,
    ) -> (StatusCode, Value) {
        if is_old(&found, body) {
            return refusal(409, "the object has been modified");
        }
        let uid = &body["metadata"]["uid"];
        if !uid.is_null() && *uid != found["metadata"]["uid"] {
            return refusal(422, "metadata.uid: Invalid value: field is immutable");
        }
        let mut object = found.clone();
        if strategic {
            merge_strategic(&mut object, body);
        } else {
            merge(&mut object, body);
        }
        if let Some(ingress) = object
            .pointer_mut("/status/loadBalancer/ingress")
            .and_then(Value::as_array_mut)
        {
            for entry in ingress {
                entry
                    .as_object_mut()
                    .unwrap()
                    .retain(|field, _| !self.unknown_fields.contains(&field.as_str()));
            }
        }
        let dying = !found["metadata"]["deletionTimestamp"].is_null();
        let added = list(&object["metadata"]["finalizers"])
            .iter()
            .any(|finalizer| !list(&found["metadata"]["finalizers"]).contains(finalizer));
        if dying && added {
            return refusal(
                422,
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
            );
        }
        if object == found {
            return (StatusCode::OK, found);
        }
        (StatusCode::OK, self.put(collection, object))
    }

    fn remove(&mut self, place: &Place, found: &Value, body: &Value) -> (StatusCode, Value) {
        let wanted = &body["preconditions"];
        for field in ["uid", "resourceVersion"] {
            if !wanted[field].is_null() && wanted[field] != found["metadata"][field] {
                return refusal(409, "precondition failed");
            }
        }
        self.delete(place);
        (
            StatusCode::OK,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
        )
    }

    fn delete(&mut self, place: &Place) {
        let mut object = self.objects[place].clone();
        if list(&object["metadata"]["finalizers"]).is_empty() {
            self.store(&place.0, "DELETED", object);
        } else {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            self.store(&place.0, "MODIFIED", object);
        }
    }

    /// Stores a changed object; one that was held by finalizers only goes with the last of them.
    fn put(&mut self, collection: &str, object: Value) -> Value {
        let metadata = &object["metadata"];
        let gone = !metadata["deletionTimestamp"].is_null() && list(&metadata["finalizers"]).is_empty();
        self.store(collection, if gone { "DELETED" } else { "MODIFIED" }, object)
    }

    fn store(&mut self, collection: &str, event: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let place = (collection.to_owned(), namespace, text(&object, "name"));
        if event == "DELETED" {
            self.objects.remove(&place);
        } else {
            self.objects.insert(place, object.clone());
        }
        let event = json!({"type": event, "object": object});
        self.watches
            .retain(|(kind, watch)| kind != collection || watch.send(line(&event)).is_ok());
        self.history.push((self.version, collection.to_owned(), event));
        object
    }

    fn find(&self, collection: &str, name: &str) -> Option<Place> {
        self.objects
            .keys()
            .find(|(kind, _, found)| kind == collection && found == name)
            .cloned()
    }
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_old(found: &Value, body: &Value) -> bool {
    let version = &body["metadata"]["resourceVersion"];
    !version.is_null() && *version != found["metadata"]["resourceVersion"]
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

/// A strategic merge patch, for the lists that controllers patch: finalizers are a set, conditions go by type, taints by key, addresses by
/// type; every other list is replaced.
fn merge_strategic(into: &mut Value, patch: &Value) {
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch.as_object().unwrap() {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let mut left = list(&into[field]).to_vec();
            left.retain(|entry| !list(value).contains(entry));
            into[field] = json!(left);
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match (key.as_str(), value) {
            (_, Value::Null) => {
                into.as_object_mut().unwrap().remove(key);
            }
            ("finalizers", Value::Array(added)) => {
                let mut all = list(&into[key]).to_vec();
                all.extend(
                    added
                        .iter()
                        .filter(|entry| !list(&into[key]).contains(entry))
                        .cloned(),
                );
                into[key] = json!(all);
            }
            ("conditions" | "addresses", Value::Array(entries)) => {
                merge_list(&mut into[key], entries, "type");
            }
            ("taints", Value::Array(entries)) => merge_list(&mut into[key], entries, "key"),
            (_, Value::Object(_)) => merge_strategic(&mut into[key], value),
            _ => into[key] = value.clone(),
        }
    }
}

fn merge_list(into: &mut Value, entries: &[Value], merge_key: &str) {
    let mut all = list(into).to_vec();
    if entries.iter().any(|entry| entry["$patch"] == json!("replace")) {
        all.clear();
    }
    for entry in entries {
        match entry["$patch"].as_str() {
            Some("replace") => {}
            Some("delete") => all.retain(|known| known[merge_key] != entry[merge_key]),
            _ => match all.iter_mut().find(|known| known[merge_key] == entry[merge_key]) {
                Some(known) => merge(known, entry),
                None => all.push(entry.clone()),
            },
        }
    }
    *into = json!(all);
}
