//! The cryptography of signed segments, all that TCP-AO and RFC 2385 take of other crates. Without the feature `tcp-auth` no key can be
//! made ([`CAN_SIGN`]), and nothing here is called.

#[cfg(feature = "tcp-auth")]
mod with_crates {
    use aes::Aes128;
    use cmac::Cmac;
    use hmac::{Hmac, KeyInit, Mac};
    use md5::{Digest, Md5};
    use sha1::Sha1;

    /// Zero for a key that it does not take; it takes every one.
    pub fn hmac_sha1(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
        let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(key) else {
            return [0; 20];
        };
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    pub fn aes_cmac(key: &[u8; 16], parts: &[&[u8]]) -> [u8; 16] {
        let mut mac = Cmac::<Aes128>::new(key.into());
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }

    pub fn md5(parts: &[&[u8]]) -> [u8; 16] {
        let mut md5 = Md5::new();
        parts.iter().for_each(|part| md5.update(part));
        md5.finalize().into()
    }
}

#[cfg(not(feature = "tcp-auth"))]
mod with_crates {
    pub fn hmac_sha1(_key: &[u8], _parts: &[&[u8]]) -> [u8; 20] {
        [0; 20]
    }

    pub fn aes_cmac(_key: &[u8; 16], _parts: &[&[u8]]) -> [u8; 16] {
        [0; 16]
    }

    pub fn md5(_parts: &[&[u8]]) -> [u8; 16] {
        [0; 16]
    }
}

pub(super) use with_crates::{aes_cmac, hmac_sha1, md5};

/// Whether this build signs and verifies segments (the feature `tcp-auth`): without, no [`Md5Key`](super::Md5Key) and no
/// [`AoKey`](super::AoKey) can be made.
pub const CAN_SIGN: bool = cfg!(feature = "tcp-auth");
