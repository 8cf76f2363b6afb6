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

// accessTable is the settings of authentication and authorization, which both services have.
var accessTable = Table{
	{Key: EnableAuth, Flag: "enable-auth", Default: "false", Kind: Bool, Help: "require authentication"},
	{
		Key: AuthRootToken, Flag: "root-token", Kind: Secret, Private: true,
		Help: "root token of at least 10 characters; prefer the environment, or the file named by " + AuthRootToken +
			"_FILE",
	},
	{Key: EnableAPIKeys, Flag: "enable-api-keys", Default: "false", Kind: Bool, Help: "enable API keys"},
	{Key: SessionTTL, Flag: "api-keys-session-ttl", Default: "5m", Kind: Duration, Check: durationBetween(time.Second,
		maxTimeout), Help: "lifetime of an API key session"},
	{Key: CACert, Flag: "ca-cert", Kind: Path, Help: "PEM file with the CAs of client certificates"},
	{Key: CRL, Flag: "crl", Kind: List, Help: "certificate revocation lists (files) of these CAs"},
	{
		Key: IngressNginx, Flag: "enable-ingress-nginx", Default: "false", Kind: Bool,
		Help: "trust the client certificate headers of a reverse proxy; only the proxy may be able to reach the port",
	},
	{
		Key: ResourceManagement, Flag: "enable-resource-management", Default: "false", Kind: Bool,
		Help: "enforce resource rights on single nodes and templates",
	},
	{
		Key: OIDCProviderURL, Flag: "oidc-provider-url", Kind: String, Check: checkURL,
		Help: "URL (issuer) of the OIDC identity provider",
	},
	{Key: OIDCClientID, Flag: "oidc-client-id", Kind: String, Help: "OIDC client ID of this service"},
	{
		Key: OIDCClientSecret, Flag: "oidc-client-secret", Kind: Secret,
		Help: "OIDC client secret; prefer the environment or a file",
	},
	{
		Key: OIDCDisplayName, Flag: "oidc-display-name", Kind: String,
		Help: "display name of the identity provider on the login page",
	},
	{
		Key: OIDCUsernameClaim, Flag: "oidc-username-claim", Kind: String,
		Help: "claim with the user name (default: preferred_username)",
	},
	{
		Key: OIDCGroupsClaim, Flag: "oidc-groups-claim", Default: "groups", Kind: String,
		Help: "claim with the user's groups",
	},
	{
		Key: OIDCScopes, Flag: "oidc-scopes", Kind: List,
		Help: "OIDC scopes to request (default: openid, profile, email)",
	},
	{
		Key: AllowedHosts, Flag: "allowed-hosts", Kind: List,
		Help: "additional host names allowed in requests to a loopback port; web pages of these hosts may call the API",
	},
	{
		Key: MaxSlowClients, Flag: "max-slow-clients", Default: "256", Kind: Int, Check: intAtLeast(1),
		Help: "maximum clients per port that read or send slowly; a quarter per address",
	},
	{
		Key: MaxLogStreams, Flag: "max-log-streams", Default: "256", Kind: Int, Check: intAtLeast(1),
		Help: "maximum concurrent log streams; a quarter per caller",
	},
	{Key: UseHTTPS, Flag: "use-https", Default: "false", Kind: Bool, Help: "serve HTTPS"},
	{
		Key: ServerCert, Flag: "server-cert", Kind: Path,
		Help: "PEM file of the server certificate with its chain; reloaded when it changes",
	},
	{Key: ServerKey, Flag: "server-key", Kind: Path, Help: "PEM file of the server's private key"},
	{Key: MinTLSVersion, Flag: "min-tls-version", Default: "1.2", Kind: String, Check: oneOf("1.2",
		"1.3"), Help: "minimum TLS version: 1.2 or 1.3"},
}

// NoAddr is the value of an address that disables its port.
const NoAddr = "none"

// localListenSetting is the port of a registry for programs on the same machine. In the process of a
// controller it is disabled while authentication is on: the process does not need it.
func localListenSetting(withAuth string) Setting {
	s := Setting{
		Key: LocalListenAddr, Flag: "local-listen-addr", Default: withAuth, Kind: String, Check: checkLoopback,
		Help: "loopback address on which the registry accepts programs of this machine without credentials; none: " +
			"disabled",
	}
	if withAuth == NoAddr {
		s.NoAuthDefault = defaultLocalAddr
	}
	return s
}

// defaultLocalAddr is the usual address of that port.
const defaultLocalAddr = "127.0.0.1:8085"

// controllerAccessTable is the additional settings of the controller, with a registry in its process
// included.
var controllerAccessTable = Table{
	{
		Key: ControllerAuthorization, Alias: Authorization, Flag: "enable-controller-authorization", Default: "false",
		Kind: Bool, Help: "enforce permissions at the controller",
	},
	{
		Key: RegistryAuthorization, Alias: Authorization, Flag: "enable-registry-authorization", Default: "false",
		Kind: Bool, Help: "enforce permissions at the registry in the same process",
	},
	{
		Key: APIKeyID, Flag: "api-key-id", Kind: String,
		Help: "API key ID of the controller at the registry, instead of the root token",
	},
	{
		Key: APIKeyString, Flag: "api-key-string", Kind: SecretText,
		Help: "private key of that API key; prefer the file named by " + APIKeyString + "_FILE",
	},
	{
		Key: RegistryCA, Flag: "registry-ca", Kind: Path,
		Help: "PEM file with the CAs to trust at the registry (default: system CAs)",
	},
	{
		Key: SkipTLSVerification, Flag: "skip-tls-verification", Default: "false", Kind: Bool,
		Help: "skip TLS verification of the registry (testing only)",
	},
	{
		Key: AllowCORS, Flag: "allow-cors", Default: "false", Kind: Bool,
		Help: "allow cross-origin requests (without cookies)",
	},
	localListenSetting(NoAddr),
	{Key: QueueAddr, Flag: "queue-addr", Kind: Addr, Help: "address of a separate node interface"},
	{
		Key: QueueAuth, Flag: "enable-queue-auth", Default: "true", Kind: Bool,
		Help: "require the join token, an API key or a certificate on the node interface; false lets every machine " +
			"that reaches the port join",
	},
	{Key: UseQueueTLS, Flag: "use-queue-tls", Default: "false", Kind: Bool, Help: "serve HTTPS on the node interface"},
	{
		Key: QueueServerCert, Flag: "queue-server-cert", Kind: Path,
		Help: "PEM file of its server certificate (default: that of the API)",
	},
	{
		Key: QueueServerKey, Flag: "queue-server-key", Kind: Path,
		Help: "PEM file of its private key (default: that of the API)",
	},
	{Key: QueueCACert, Flag: "queue-ca-cert", Kind: Path, Help: "PEM file with the CAs whose certificates admit nodes"},
	{Key: QueueCRL, Flag: "queue-crl", Kind: List, Help: "certificate revocation lists (files) of these CAs"},
}

// registryAccessTable is the additional settings of a registry that runs alone.
var registryAccessTable = Table{
	{
		Key: Authorization, Alias: RegistryAuthorization, Flag: "enable-authorization", Default: "false", Kind: Bool,
		Help: "enforce permissions",
	},
	{
		Key: EventLogging, Flag: "enable-event-logging", Default: "false", Kind: Bool,
		Help: "write audit events to the registry's event log",
	},
	localListenSetting(defaultLocalAddr), licenseFileSetting, licenseAuthoritySetting,
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
	return errors.New("a loopback address such as " + defaultLocalAddr + ", or " + NoAddr)
}
