//! Whom Alertmanager tells. Enters: its posts; leaves: the alerts in them, in the order in which they came.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use serde::Deserialize;

use super::http::Serving;

/// Whether it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// It is not.
    Firing,
    /// It is.
    Resolved,
}

/// An alert as a receiver gets it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Alert {
    /// Whether it is over.
    pub(crate) status: Status,
    /// What it is about.
    pub(crate) labels: BTreeMap<String, String>,
    /// What is to be said of it.
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Alert {
    /// The alert's name.
    pub(crate) fn name(&self) -> &str {
        self.labels.get("alertname").map_or("", String::as_str)
    }
}

/// The part of a post that counts.
#[derive(Debug, Deserialize)]
struct Post {
    alerts: Vec<Alert>,
}

/// A receiver.
pub(super) struct Webhook {
    serving: Serving,
    alerts: Arc<Mutex<Vec<Alert>>>,
}

impl Webhook {
    pub(super) fn start() -> Result<Self> {
        let alerts = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&alerts);
        let serving = Serving::start(move |_, body| {
            if let Ok(post) = serde_json::from_slice::<Post>(body) {
                told.lock().unwrap_or_else(PoisonError::into_inner).extend(post.alerts);
            }
            String::new()
        })?;
        Ok(Self { serving, alerts })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    pub(super) fn alerts(&self) -> Vec<Alert> {
        self.alerts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
