package peers

import "crypto/tls"

// ServerTLS is Identity.serverTLS.
func ServerTLS(i *Identity) *tls.Config { return i.serverTLS() }

// ClientTLS is Identity.clientTLS.
func ClientTLS(i *Identity, key string) *tls.Config { return i.clientTLS(key) }
