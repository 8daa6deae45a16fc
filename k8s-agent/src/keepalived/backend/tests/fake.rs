//! As much of kube-apiserver as the backend uses: one ConfigMap with versions, and a list of Services.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::super::config_map::RECORDS;

/// How the server treats writes.
#[derive(Clone, Debug)]
pub(super) enum Answers {
    Normally,
    /// Somebody else writes these entries right before the next write.
    Meddle(Vec<(&'static str, &'static str)>),
    /// Every write is refused.
    Refuse(u16),
    /// The connection breaks at this request and stays broken.
    Die {
        at: u32,
        is_carried_out: bool,
    },
}

struct State {
    config_map: Option<Value>,
    version: u64,
    services: Vec<Value>,
    hidden: Vec<String>,
    answers: Answers,
    requests: u32,
    bodies: Vec<(String, Value)>,
}

#[derive(Clone)]
pub(super) struct Server(Arc<Mutex<State>>);

/// A Service of type LoadBalancer.
pub(super) fn service(name: &str) -> Value {
    json!({
        "metadata": { "uid": format!("uid-{name}"), "namespace": "default", "name": name },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
    })
}

fn is_named(service: &Value, name: &str) -> bool {
    service["metadata"]["name"] == name
}

impl Server {
    pub(super) fn empty() -> Self {
        Self(Arc::new(Mutex::new(State {
            config_map: None,
            version: 0,
            services: Vec::new(),
            hidden: Vec::new(),
            answers: Answers::Normally,
            requests: 0,
            bodies: Vec::new(),
        })))
    }

    pub(super) fn with_config_map() -> Self {
        let server = Self::empty();
        server.0.lock().create();
        server
    }

    pub(super) fn with(self, service: Value) -> Self {
        self.0.lock().services.push(service);
        self
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let answer = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                // Others may come in between, as over a network.
                tokio::task::yield_now().await;
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let answer = server
                    .0
                    .lock()
                    .answer(parts.method.as_str(), parts.uri.path(), &body);
                tokio::task::yield_now().await;
                answer.map_err(std::io::Error::other)
            }
        });
        Client::new(answer, "default")
    }

    pub(super) fn answer(&self, answers: Answers) {
        let mut state = self.0.lock();
        state.answers = answers;
        state.requests = 0;
    }

    /// What a watch has seen.
    pub(super) fn seen_services(&self) -> Vec<Arc<Service>> {
        let state = self.0.lock();
        let seen = state
            .services
            .iter()
            .filter(|service| !state.hidden.iter().any(|hidden| is_named(service, hidden)));
        seen.map(|service| Arc::new(serde_json::from_value(service.clone()).unwrap()))
            .collect()
    }

    pub(super) fn service(&self, name: &str) -> Arc<Service> {
        let state = self.0.lock();
        let found = state
            .services
            .iter()
            .find(|service| is_named(service, name))
            .unwrap();
        Arc::new(serde_json::from_value(found.clone()).unwrap())
    }

    /// The watch is behind and does not show this Service.
    pub(super) fn hide(&self, name: &str) {
        self.0.lock().hidden.push(name.to_owned());
    }

    pub(super) fn delete(&self, name: &str) {
        self.0.lock().services.retain(|service| !is_named(service, name));
    }

    pub(super) fn publish(&self, name: &str, address: &str) {
        let mut state = self.0.lock();
        let found = state
            .services
            .iter_mut()
            .find(|service| is_named(service, name))
            .unwrap();
        found["status"]["loadBalancer"]["ingress"] = json!([{ "ip": address }]);
    }

    pub(super) fn addresses(&self) -> Vec<Value> {
        self.0
            .lock()
            .services
            .iter()
            .map(|service| service["status"]["loadBalancer"]["ingress"].clone())
            .collect()
    }

    pub(super) fn edit(&self, key: &str, value: Option<&str>) {
        self.0.lock().merge(&json!({ "data": { key: value } }));
    }

    pub(super) fn data(&self) -> Value {
        let state = self.0.lock();
        state
            .config_map
            .as_ref()
            .and_then(|object| object.get("data").cloned())
            .unwrap_or_else(|| json!({}))
    }

    pub(super) fn records(&self) -> Vec<Value> {
        let state = self.0.lock();
        let text = state.config_map.as_ref().unwrap()["metadata"]["annotations"][RECORDS]
            .as_str()
            .unwrap()
            .to_owned();
        serde_json::from_str::<Value>(&text).unwrap()["services"]
            .as_array()
            .unwrap()
            .clone()
    }

    pub(super) fn bodies(&self) -> Vec<(String, Value)> {
        self.0.lock().bodies.clone()
    }

    /// Writes that were carried out.
    pub(super) fn writes(&self) -> usize {
        self.0.lock().bodies.len()
    }
}

impl State {
    fn create(&mut self) {
        self.version += 1;
        self.config_map = Some(json!({
            "metadata": { "name": "vip-configmap", "namespace": "kube-system", "resourceVersion": self.version.to_string() },
        }));
    }

    fn merge(&mut self, patch: &Value) {
        self.version += 1;
        let object = self.config_map.as_mut().unwrap();
        merge(object, patch);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    fn answer(&mut self, method: &str, path: &str, body: &Value) -> Result<Response<Body>, String> {
        self.requests += 1;
        if let Answers::Die { at, is_carried_out } = self.answers
            && self.requests >= at
        {
            if is_carried_out && self.requests == at {
                let _lost = self.act(method, path, body);
            }
            return Err("connection reset".to_owned());
        }
        let (code, body) = self.act(method, path, body);
        Ok(Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()))
            .unwrap())
    }

    fn act(&mut self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        if path == "/api/v1/services" {
            return (
                StatusCode::OK,
                json!({ "metadata": { "resourceVersion": "1" }, "items": self.services }),
            );
        }
        if method == "GET" {
            return match &self.config_map {
                Some(object) => (StatusCode::OK, object.clone()),
                None => refusal(StatusCode::NOT_FOUND),
            };
        }
        match &self.answers {
            Answers::Refuse(code) => return refusal(StatusCode::from_u16(*code).unwrap()),
            Answers::Meddle(entries) => {
                let entries = entries.clone();
                self.answers = Answers::Normally;
                for (key, value) in entries {
                    self.merge(&json!({ "data": { key: value } }));
                }
            }
            Answers::Normally | Answers::Die { .. } => {}
        }
        match (method, &self.config_map) {
            ("POST", Some(_)) => return refusal(StatusCode::CONFLICT),
            ("POST", None) => self.create(),
            ("PATCH", None) => return refusal(StatusCode::NOT_FOUND),
            ("PATCH", Some(object)) => {
                let (read, present) = (
                    &body["metadata"]["resourceVersion"],
                    &object["metadata"]["resourceVersion"],
                );
                if read != present {
                    return refusal(StatusCode::CONFLICT);
                }
                self.merge(body);
            }
            other => panic!("the backend sends {other:?}"),
        }
        self.bodies.push((method.to_owned(), body.clone()));
        (StatusCode::OK, self.config_map.clone().unwrap())
    }
}

fn refusal(code: StatusCode) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "refused", "reason": "Refused", "code": code.as_u16(),
    });
    (code, status)
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let object = target.as_object_mut().unwrap();
    for (name, value) in members {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
