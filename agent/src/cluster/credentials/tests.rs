//! Kubeconfigs as people and programs break them.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::cluster::access::{Access, AccessError};

const LONG: Duration = Duration::from_secs(60);

/// A directory with a kubeconfig.
struct Place(tempfile::TempDir);

impl Place {
    fn with(cluster: &Value, user: &Value) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}], "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]});
        fs::write(place.file(), config.to_string()).unwrap();
        place
    }

    fn of_user(user: &Value) -> Self {
        Self::with(&json!({"server": "https://127.0.0.1:6443"}), user)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("kubeconfig")
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), content).unwrap();
    }

    fn pipe(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.0.path().join(name)).status();
        assert!(made.unwrap().success());
    }

    fn credentials(&self) -> Credentials {
        Credentials::Kubeconfig { path: Some(self.file()), context: None }
    }

    fn found(&self) -> Result<Found, Fault> {
        find(&self.credentials(), LONG)
    }

    fn fault(&self) -> String {
        self.found().map(|_| ()).unwrap_err().to_string()
    }

    fn token(&self) -> String {
        self.found().unwrap().config.auth_info.token.unwrap().expose_secret().to_owned()
    }
}

fn assert_told(told: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn a_token_that_is_no_header_is_refused() {
    let place = Place::of_user(&json!({"token": "a\nb"}));
    assert_told(&place.fault(), &["its token holds a line end"]);
    let place = Place::of_user(&json!({"tokenFile": "token"}));
    for bad in ["a\nb\n", "a\u{7f}b", "a\0"] {
        place.write("token", bad);
        assert_told(&place.fault(), &["its token file /", "/token holds a line end"]);
    }
    place.write("token", "\n");
    assert_told(&place.fault(), &["/token is empty"]);
    place.write("token", b"\xff");
    assert_told(&place.fault(), &["/token cannot be read"]);
    place.write("token", " good\r\n");
    assert_eq!(place.token(), "good");
    assert!(place.found().unwrap().is_replaced);
    assert!(place.found().unwrap().config.auth_info.token_file.is_none(), "the client reads no file");
}

#[test]
fn what_else_becomes_a_header_is_checked_too() {
    for (field, value) in [
        ("as", json!("a\nb")),
        ("as-uid", json!("a\rb")),
        ("as-groups", json!(["good", "a\nb"])),
        ("as-user-extra", json!({"scopes": ["a\nb"]})),
    ] {
        let place = Place::of_user(&json!({"token": "good", field: value}));
        assert_told(&place.fault(), &["its impersonated", field, "line end"]);
    }
    // Encoded, so that anything goes.
    assert!(Place::of_user(&json!({"username": "a\nb", "password": "c\nd"})).found().is_ok());
    let provider =
        |name: &str, config: Value| json!({"auth-provider": {"name": name, "config": config}, "token": "x"});
    let place = Place::of_user(&provider("oidc", json!({"id-token": "a\nb"})));
    assert_told(&place.fault(), &["its id-token holds"]);
    assert_eq!(Place::of_user(&provider("oidc", json!({"id-token": "good"}))).token(), "good");
    let place = Place::of_user(&provider("gcp", json!({"cmd-path": "sleep", "cmd-args": "1000"})));
    assert_told(&place.fault(), &["its auth-provider gcp is not supported", "exec plugin"]);
}

#[test]
fn a_plugin_is_run_here_and_not_by_the_client() {
    let plugin = |script: &str| {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "Never"});
        Place::of_user(&json!({"exec": exec}))
    };
    let place =
        plugin(r#"echo '{"status": {"token": "good", "expirationTimestamp": "2026-11-01T09:00:00Z"}}'"#);
    let found = place.found().unwrap();
    assert!(found.config.auth_info.exec.is_none());
    assert_eq!((place.token().as_str(), found.until), ("good", Timestamp::parse("2026-11-01T09:00:00Z")));
    let place = plugin(r#"echo '{"status": {"token": "a\\nb"}}'"#);
    assert_told(&place.fault(), &["the token of its exec plugin holds"]);
    let place = plugin(r#"echo '{"status": {"clientCertificateData": "c", "clientKeyData": "k"}}'"#);
    assert_eq!(place.found().unwrap().config.auth_info.client_certificate_data.as_deref(), Some("Yw=="));
    assert_told(&plugin("exit 1").fault(), &["its exec plugin sh failed"]);
}

#[test]
fn an_address_that_is_no_api_server_is_refused() {
    for server in ["ftp://x", "10.0.0.1:6443", "x", "/x", "unix:///run/x", ""] {
        let fault = Place::with(&json!({"server": server}), &json!({})).fault();
        assert_told(&fault, &["its server is ", "https:// or http://"]);
    }
    assert_told(&Place::with(&json!({}), &json!({})).fault(), &["its server is missing"]);
    for server in
        ["http://127.0.0.1:8001", "https://x.example.com/k8s/c-1", "HTTPS://x", "https://[::1]:6443"]
    {
        assert!(Place::with(&json!({"server": server}), &json!({})).found().is_ok(), "{server}");
    }
}

#[test]
fn a_certificate_authority_that_is_none_is_refused() {
    let data = |data: &str| {
        let cluster = json!({"server": "https://x", "certificate-authority-data": data});
        Place::with(&cluster, &json!({})).fault()
    };
    assert_told(&data("%%%"), &["its certificate-authority-data is no base64"]);
    assert_told(&data(&STANDARD.encode("garbage")), &["holds no certificate", "BEGIN CERTIFICATE"]);
    let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_told(&data(&STANDARD.encode(hollow)), &["its certificate authority is none"]);
    let cluster = json!({"server": "https://x", "certificate-authority": "ca.pem"});
    let place = Place::with(&cluster, &json!({}));
    assert_told(&place.fault(), &["its certificate-authority /", "/ca.pem cannot be read: No such file"]);
    place.write("ca.pem", "");
    assert_told(&place.fault(), &["holds no certificate"]);
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let file = |field: &str| {
        let cluster = json!({"server": "https://x"});
        let (mut cluster, mut user) = (cluster, json!({}));
        if field == "certificate-authority" {
            cluster[field] = json!("pipe");
        } else {
            user[field] = json!("pipe");
        }
        let place = Place::with(&cluster, &user);
        place.pipe("pipe");
        place.fault()
    };
    for field in ["certificate-authority", "client-certificate", "client-key", "tokenFile"] {
        assert_told(&file(field), &["/pipe is no regular file"]);
    }
    let place = Place::of_user(&json!({}));
    fs::remove_file(place.file()).unwrap();
    place.pipe("kubeconfig");
    assert_told(&place.fault(), &["it is no regular file"]);
    fs::remove_file(place.file()).unwrap();
    fs::create_dir(place.file()).unwrap();
    assert_told(&place.fault(), &["it is no regular file"]);
    fs::remove_dir(place.file()).unwrap();
    assert_told(&place.fault(), &["it cannot be read: No such file"]);
    let large = fs::File::create(place.file()).unwrap();
    large.set_len(MOST_FILE + 1).unwrap();
    assert_told(&place.fault(), &["it is larger than 4 MiB"]);
    // A link is as good as what it leads to.
    let place = Place::of_user(&json!({"tokenFile": "link"}));
    place.write("token", "good");
    std::os::unix::fs::symlink(place.0.path().join("token"), place.0.path().join("link")).unwrap();
    assert_eq!(place.token(), "good");
}

async fn access_error(place: &Place) -> AccessError {
    match Access::new(place.credentials()).await {
        Ok(_) => panic!("it was taken"),
        Err(why) => why,
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_harmlessly_and_without_secrets() {
    let place = Place::of_user(&json!({}));
    place.write("kubeconfig", "users:\n- name: a\n  user: {token: secret\n\u{1b}[31m");
    let told = access_error(&place).await.to_string();
    assert_told(&told, &["cannot use the kubeconfig /", "/kubeconfig: it is no kubeconfig in YAML"]);
    assert!(!told.contains("secret") && !told.contains(char::is_control) && !told.contains("\\n"), "{told}");
    place.write("kubeconfig", "current-context: \"\\e[31mred\"\n");
    let told = access_error(&place).await.to_string();
    assert_told(&told, &["it has no context \\u{1b}[31mred"]);
    let cluster = json!({"server": "https://x", "certificate-authority": "a\u{1b}b.pem"});
    let told = access_error(&Place::with(&cluster, &json!({}))).await.to_string();
    assert!(told.contains("a\\u{1b}b.pem cannot be read") && !told.contains('"'), "{told}");
    fs::remove_file(place.file()).unwrap();
    let told = access_error(&place).await.to_string();
    assert!(told.contains("/kubeconfig: it cannot be read: No such file") && !told.contains('"'), "{told}");
}

/// What a service account's mount gives has the same form: a file with a token, and certificates.
#[test]
fn a_service_accounts_token_is_read_here() {
    let place = Place::of_user(&json!({}));
    place.write("token", "good\n");
    let mut config = Config::new("https://10.96.0.1".parse().unwrap());
    config.auth_info.token_file = Some(place.0.path().join("token").display().to_string());
    let read = found(config.clone(), LONG).unwrap();
    assert_eq!(read.config.auth_info.token.unwrap().expose_secret(), "good");
    assert!(read.is_replaced);
    place.write("token", "a\nb");
    assert_told(
        &found(config.clone(), LONG).map(|_| ()).unwrap_err().to_string(),
        &["/token holds a line end"],
    );
    config.root_cert = Some(Vec::new());
    assert_told(&found(config, LONG).map(|_| ()).unwrap_err().to_string(), &["holds no certificate"]);
}
