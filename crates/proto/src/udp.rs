//! UDP (RFC 768): datagram checks and building.
