package peers

import "crypto/tls"

// ClientTLS is Identity.clientTLS.
func ClientTLS(i *Identity, key string) *tls.Config { return i.clientTLS(key) }
