//! Certificates for tests, issued on demand.

#![allow(dead_code, reason = "no test uses all of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType,
};
use tokio_rustls::rustls::{
    self, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A certificate authority with a folder for the files of one test.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The folder of its files.
    pub folder: PathBuf,
}

/// A certificate and its key, in memory and in files.
pub struct Issued {
    /// The certificate.
    pub cert: CertificateDer<'static>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
    /// The certificate's file.
    pub cert_file: PathBuf,
    /// The key's file.
    pub key_file: PathBuf,
}

impl Authority {
    /// An authority for this test.
    pub fn new(test: &str) -> Authority {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tls").join(test);
        fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, test);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    /// The file of its own certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Issues a certificate; `file` is the name of its files.
    pub fn issue(&self, file: &str, mut params: CertificateParams) -> Issued {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        params.extended_key_usages = vec![ServerAuth, ClientAuth];
        let pair = KeyPair::generate().unwrap();
        let cert = params.signed_by(&pair, &self.issuer).unwrap();
        let cert_file = self.folder.join(format!("{file}.pem"));
        let key_file = self.folder.join(format!("{file}.key"));
        // An earlier run may have left a read-only file.
        let _ = (fs::remove_file(&cert_file), fs::remove_file(&key_file));
        fs::write(&cert_file, cert.pem()).unwrap();
        fs::write(&key_file, pair.serialize_pem()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.serialize_pem().as_bytes()).unwrap();
        Issued { cert: cert.der().clone(), key, cert_file, key_file }
    }

    /// A server certificate for this machine.
    pub fn server(&self, file: &str) -> Issued {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        self.issue(file, CertificateParams::new(names).unwrap())
    }

    /// A client certificate with these names.
    pub fn client(&self, file: &str, common: Option<&str>, names: &[SanType]) -> Issued {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Agents");
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        params.subject_alt_names = names.to_vec();
        self.issue(file, params)
    }

    /// A client configuration that trusts this authority.
    pub fn trusting(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        self.trusting_with(rustls::ALL_VERSIONS)
    }

    /// The same for certain versions of TLS only.
    pub fn trusting_with(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots)
    }

    /// A client without a certificate.
    pub fn without_certificate(&self) -> ClientConfig {
        self.trusting().with_no_client_auth()
    }
}
