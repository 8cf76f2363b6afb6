package config

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// Keys of authentication, authorization and TLS.
const (
	EnableAuth              = "SVC_ENABLE_AUTH"
	AuthRootToken           = "SVC_ROOT_TOKEN"      //nolint:gosec // the name of a setting
	EnableAPIKeys           = "SVC_ENABLE_API_KEYS" //nolint:gosec // the name of a setting
	SessionTTL              = "SVC_API_KEYS_SESSION_TTL"
	CACert                  = "SVC_CA_CERT"
	CRL                     = "SVC_CRL"
	IngressNginx            = "SVC_ENABLE_INGRESS_NGINX"
	ControllerAuthorization = "SVC_ENABLE_CONTROLLER_AUTHORIZATION"
	RegistryAuthorization   = "SVC_ENABLE_REGISTRY_AUTHORIZATION"
	Authorization           = "SVC_ENABLE_AUTHORIZATION"
	ResourceManagement      = "SVC_ENABLE_RESOURCE_MANAGEMENT"
	OIDCClientID            = "SVC_OIDC_CLIENT_ID"
	OIDCClientSecret        = "SVC_OIDC_CLIENT_SECRET" //nolint:gosec // the name of a setting
	OIDCProviderURL         = "SVC_OIDC_PROVIDER_URL"
	OIDCDisplayName         = "SVC_OIDC_DISPLAY_NAME"
	OIDCUsernameClaim       = "SVC_OIDC_USERNAME_CLAIM"
	OIDCGroupsClaim         = "SVC_OIDC_GROUPS_CLAIM"
	OIDCScopes              = "SVC_OIDC_SCOPES"
	UseHTTPS                = "SVC_USE_HTTPS"
	ServerCert              = "SVC_SERVER_CERT"
	ServerKey               = "SVC_SERVER_KEY"
	MinTLSVersion           = "SVC_MIN_TLS_VERSION"
	SkipTLSVerification     = "SVC_SKIP_TLS_VERIFICATION"
	RegistryCA              = "SVC_REGISTRY_CA"
	APIKeyID                = "SVC_API_KEY_ID"     //nolint:gosec // the name of a setting
	APIKeyString            = "SVC_API_KEY_STRING" //nolint:gosec // the name of a setting
	LocalListenAddr         = "SVC_LOCAL_LISTEN_ADDR"
	QueueAddr               = "SVC_QUEUE_ADDR"
	QueueAuth               = "SVC_ENABLE_QUEUE_AUTH"
	UseQueueTLS             = "SVC_USE_QUEUE_TLS"
	QueueServerCert         = "SVC_QUEUE_SERVER_CERT"
	QueueServerKey          = "SVC_QUEUE_SERVER_KEY"
	QueueCACert             = "SVC_QUEUE_CA_CERT"
	QueueCRL                = "SVC_QUEUE_CRL"
	AllowCORS               = "SVC_ALLOW_CORS"
	AllowedHosts            = "SVC_ALLOWED_HOSTS"
	MaxSlowClients          = "SVC_MAX_SLOW_CLIENTS"
	MaxLogStreams           = "SVC_MAX_LOG_STREAMS"
)

// access is the settings of authentication and authorization, which both services have.
var access = Table{
	{Key: EnableAuth, Flag: "enable-auth", Default: "false", Kind: Bool, Help: "require authentication"},
	{Key: AuthRootToken, Flag: "root-token", Kind: Secret, Private: true, Help: "token of the root user, of 10 characters or more; better in the environment, or in the file that " + AuthRootToken + "_FILE names"},
	{Key: EnableAPIKeys, Flag: "enable-api-keys", Default: "false", Kind: Bool, Help: "have user keys, which programs turn into sessions"},
	{Key: SessionTTL, Flag: "api-keys-session-ttl", Default: "5m", Kind: Duration, Check: between(time.Second, aDay), Help: "how long a session of a user key lasts"},
	{Key: CACert, Flag: "ca-cert", Kind: Path, Help: "PEM file of the authorities whose certificates callers may be known by"},
	{Key: CRL, Flag: "crl", Kind: List, Help: "files of the revocation lists of these authorities"},
	{Key: IngressNginx, Flag: "enable-ingress-nginx", Default: "false", Kind: Bool, Help: "believe the headers of a reverse proxy: whom a request is from, and with which certificate; nothing else may reach the port then"},
	{Key: ResourceManagement, Flag: "enable-resource-management", Default: "false", Kind: Bool, Help: "have rights on single nodes and templates count too"},
	{Key: OIDCProviderURL, Flag: "oidc-provider-url", Kind: String, Check: checkURL, Help: "address (issuer) of an identity provider that vouches for users"},
	{Key: OIDCClientID, Flag: "oidc-client-id", Kind: String, Help: "id of this service at the identity provider"},
	{Key: OIDCClientSecret, Flag: "oidc-client-secret", Kind: Secret, Help: "its secret there; better in the environment or in a file"},
	{Key: OIDCDisplayName, Flag: "oidc-display-name", Kind: String, Help: "what the log-in page calls the identity provider"},
	{Key: OIDCUsernameClaim, Flag: "oidc-username-claim", Kind: String, Help: "claim that has the name of a user (default: preferred_username)"},
	{Key: OIDCGroupsClaim, Flag: "oidc-groups-claim", Default: "groups", Kind: String, Help: "claim that has the groups of a user"},
	{Key: OIDCScopes, Flag: "oidc-scopes", Kind: List, Help: "what the identity provider is asked for (default: openid, profile, email)"},
	{Key: AllowedHosts, Flag: "allowed-hosts", Kind: List, Help: "host names by which requests may ask a port on loopback, besides this machine's; pages of these hosts may use the API"},
	{Key: MaxSlowClients, Flag: "max-slow-clients", Default: "256", Kind: Int, Check: atLeast(1), Help: "how many clients of a port may send or read slowly at a time; a quarter of them may have one address"},
	{Key: MaxLogStreams, Flag: "max-log-streams", Default: "256", Kind: Int, Check: atLeast(1), Help: "how many streams of central logs a service serves, or the controller passes on, at a time; a quarter of them may be one caller's"},
	{Key: UseHTTPS, Flag: "use-https", Default: "false", Kind: Bool, Help: "serve HTTPS"},
	{Key: ServerCert, Flag: "server-cert", Kind: Path, Help: "PEM file of the certificate for that, with its chain; it is followed while it changes"},
	{Key: ServerKey, Flag: "server-key", Kind: Path, Help: "PEM file of its private key"},
	{Key: MinTLSVersion, Flag: "min-tls-version", Default: "1.2", Kind: String, Check: oneOf("1.2", "1.3"), Help: "least version of TLS that is spoken: 1.2 or 1.3"},
}

// NoAddr is the value of an address that switches its port off.
const NoAddr = "none"

// localListen is the port of a registry for programs of the same machine. In the process of a
// controller it is off while authentication is on: the process does not need it.
func localListen(withAuth string) Setting {
	s := Setting{
		Key: LocalListenAddr, Flag: "local-listen-addr", Default: withAuth, Kind: String, Check: checkLoopback,
		Help: "address of this machine on which the registry takes programs of this machine without credentials; none: no such port",
	}
	if withAuth == NoAddr {
		s.NoAuth = localAddr
	}
	return s
}

// localAddr is the usual address of that port.
const localAddr = "127.0.0.1:8085"

// controllerAccess is the additional settings of the controller, with a registry in its process
// included.
var controllerAccess = Table{
	{Key: ControllerAuthorization, Also: Authorization, Flag: "enable-controller-authorization", Default: "false", Kind: Bool, Help: "enforce permissions at the controller"},
	{Key: RegistryAuthorization, Also: Authorization, Flag: "enable-registry-authorization", Default: "false", Kind: Bool, Help: "enforce permissions at the registry in the same process"},
	{Key: APIKeyID, Flag: "api-key-id", Kind: String, Help: "id of the user key that the controller shows to the registry, instead of the root token"},
	{Key: APIKeyString, Flag: "api-key-string", Kind: SecretText, Help: "private key of that user key; better in the file that " + APIKeyString + "_FILE names"},
	{Key: RegistryCA, Flag: "registry-ca", Kind: Path, Help: "PEM file of the authorities to trust at the registry instead of the system's"},
	{Key: SkipTLSVerification, Flag: "skip-tls-verification", Default: "false", Kind: Bool, Help: "believe whoever answers at the registry's address: for tests alone"},
	{Key: AllowCORS, Flag: "allow-cors", Default: "false", Kind: Bool, Help: "let scripts of pages of other sites use the API, with credentials that they show themselves"},
	localListen(NoAddr),
	{Key: QueueAddr, Flag: "queue-addr", Kind: Addr, Help: "address of an interface for nodes alone, besides the API's"},
	{Key: QueueAuth, Flag: "enable-queue-auth", Default: "true", Kind: Bool, Help: "ask for the join token, a user key or a certificate there; false lets every machine that reaches the port become a node"},
	{Key: UseQueueTLS, Flag: "use-queue-tls", Default: "false", Kind: Bool, Help: "serve HTTPS there"},
	{Key: QueueServerCert, Flag: "queue-server-cert", Kind: Path, Help: "PEM file of the certificate for that (default: that of the API)"},
	{Key: QueueServerKey, Flag: "queue-server-key", Kind: Path, Help: "PEM file of its private key"},
	{Key: QueueCACert, Flag: "queue-ca-cert", Kind: Path, Help: "PEM file of the authorities whose certificates let machines become nodes there"},
	{Key: QueueCRL, Flag: "queue-crl", Kind: List, Help: "files of the revocation lists of these authorities"},
}

// registryAccess is the additional settings of a registry that runs alone.
var registryAccess = Table{
	{Key: Authorization, Also: RegistryAuthorization, Flag: "enable-authorization", Default: "false", Kind: Bool, Help: "enforce permissions"},
	{Key: EventLogging, Flag: "enable-event-logging", Default: "false", Kind: Bool, Help: "write who changes what into the registry's log of events"},
	localListen(localAddr), licenseFile, licenseAuthority,
}

// checkLoopback requires an address that other machines cannot reach, or none.
func checkLoopback(text string) error {
	if text == NoAddr {
		return nil
	}
	host, _, _ := net.SplitHostPort(text)
	addr, err := netip.ParseAddr(host)
	if checkAddr(text) == nil && (host == "" || host == "localhost" || err == nil && addr.Unmap().IsLoopback()) {
		return nil
	}
	return errors.New("an address of this machine that others cannot reach, such as " + localAddr + ", or " + NoAddr)
}
