package config

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Keys that the commands read.
const (
	Registry              = "SVC_REGISTRY"
	LocalRegistry         = "SVC_LOCAL_REGISTRY"
	PushRegistry          = "SVC_PUSH_REGISTRY"
	ListenAddr            = "SVC_LISTEN_ADDR"
	DataDir               = "SVC_DATA_DIR"
	EtcdEndpoints         = "SVC_ETCD_ENDPOINTS"
	Standalone            = "SVC_STANDALONE"
	VMListCacheTTL        = "SVC_VM_LIST_CACHE_TTL"
	InstanceTimeOut       = "SVC_INSTANCE_TIME_OUT"
	NodeActiveTimeout     = "SVC_NODE_ACTIVE_TIMEOUT"
	InstanceActiveTimeout = "SVC_INSTANCE_ACTIVE_TIMEOUT"
	StartTimeout          = "SVC_START_TIMEOUT"
	PullTimeout           = "SVC_PULL_TIMEOUT"
	PushTimeout           = "SVC_PUSH_TIMEOUT"
	UnknownVMThreshold    = "SVC_UNKNOWN_VM_THRESHOLD"
	GracefulShutdown      = "SVC_GRACEFUL_SHUTDOWN_TIMEOUT"
	RequestTimeout        = "SVC_REQUEST_TIMEOUT"
	RunRegistry           = "SVC_RUN_REGISTRY"
	RegistryBasePath      = "SVC_REGISTRY_BASE_PATH"
	RegistryListenAddress = "SVC_REGISTRY_LISTEN_ADDRESS"
	VMNamePrefix          = "SVC_VM_NAME_PREFIX"
	Placement             = "SVC_PLACEMENT"
	LocalityWait          = "SVC_LOCALITY_WAIT"
	LocalitySize          = "SVC_LOCALITY_SIZE"
	DistributeAtOnce      = "SVC_DISTRIBUTE_AT_ONCE"
	EventLogging          = "SVC_ENABLE_EVENT_LOGGING"
	EventLogURL           = "SVC_EVENT_LOG_URL"
	BackupDir             = "SVC_BACKUP_DIR"
	BackupEvery           = "SVC_BACKUP_EVERY"
	BackupKeep            = "SVC_BACKUP_KEEP"
	BasePath              = "SVC_BASE_PATH"
	ScrubRate             = "SVC_SCRUB_RATE"
	MaxPushes             = "SVC_MAX_PUSHES"
	MaxPushReservation    = "SVC_MAX_PUSH_RESERVATION"
	MaxLogRows            = "SVC_MAX_LOG_ROWS"
	MaxLogRowBytes        = "SVC_MAX_LOG_ROW_BYTES"
	MaxWaiting            = "SVC_MAX_WAITING"
	MaxWaitingSize        = "SVC_MAX_WAITING_SIZE"
	MaxScriptsSize        = "SVC_MAX_SCRIPTS_SIZE"
	MaxIdempotencyKeys    = "SVC_MAX_IDEMPOTENCY_KEYS"
	MaxWatches            = "SVC_MAX_WATCHES"
	LogLevel              = "SVC_LOG_LEVEL"
	LicenseFile           = "SVC_LICENSE_FILE"
	LicenseAuthority      = "SVC_LICENSE_AUTHORITY"
	EnableMetrics         = "SVC_ENABLE_METRICS"
	MetricsPort           = "SVC_METRICS_PORT"
	MetricsPath           = "SVC_METRICS_PATH"
	LogDir                = "SVC_LOG_DIR"
	CentralLogging        = "SVC_ENABLE_CENTRAL_LOGGING"
	KeepLogs              = "SVC_KEEP_LOGS_FOR"
	MaxLogSize            = "SVC_MAX_LOG_SIZE"
	Controller            = "SVC_CONTROLLER"
	ManageMACs            = "SVC_MANAGE_MAC_ADDRESSES"
	MACRange              = "SVC_MAC_ADDR_RANGE"
	Context               = "SVC_CONTEXT"
	RootToken             = "SVC_CLIENT_ROOT_TOKEN" //nolint:gosec // the name of a setting
	TrustedCA             = "SVC_CLIENT_CA"
	ClientCert            = "SVC_CLIENT_CERT"
	ClientKey             = "SVC_CLIENT_KEY"
	ClientBearer          = "SVC_CLIENT_BEARER" //nolint:gosec // the name of a setting
	ClientKeyID           = "SVC_CLIENT_API_KEY_ID"
	ClientKeyString       = "SVC_CLIENT_API_KEY_STRING"
	PackagesDir           = "SVC_PACKAGES_DIR"
	NoNodeUpgrades        = "SVC_NO_NODE_UPGRADES"
	SkipVerification      = "SVC_CLIENT_SKIP_TLS_VERIFICATION"
)

// aDay bounds every time-out: a longer one is a slip of the unit.
const aDay = 24 * time.Hour

// ControllerTable is the settings of the controller, alone or with a registry in the
// same process.
var ControllerTable = slices.Concat(Table{
	{Key: Registry, Flag: "registry", Kind: String, Check: checkURL, Help: "address of the registry as nodes and clients reach it"},
	{Key: LocalRegistry, Flag: "local-registry", Kind: String, Check: checkURL, Help: "address of the registry as the controller reaches it, when it differs"},
	{Key: PushRegistry, Flag: "push-registry", Kind: String, Check: checkURL, Help: "address to which nodes push saved images, when it differs"},
	{Key: ListenAddr, Flag: "listen-addr", Default: ":8090", NoAuth: "127.0.0.1:8090", Kind: Addr, Help: "address of the controller's API and portal"},
	{Key: DataDir, Flag: "data-dir", Default: dataDir("controller"), Kind: Path, Help: "directory of the controller's records"},
	{Key: EtcdEndpoints, Flag: "etcd-endpoints", Kind: List, Check: eachURL, Help: "addresses of an external etcd cluster; without them the store is embedded"},
	{Key: Standalone, Flag: "standalone", Kind: String, Check: checkBool, Help: "true asks for the embedded store, false for an external etcd (" + EtcdEndpoints + "); without it the endpoints decide"},
	{Key: InstanceTimeOut, Flag: "instance-time-out", Default: "1m", Kind: Duration, Check: between(0, aDay), Help: "how long the record of a terminated instance is kept"},
	{Key: NodeActiveTimeout, Flag: "node-active-timeout", Default: "2m", Kind: Duration, Check: between(time.Second, aDay), Help: "heartbeat timeout before Offline"},
	{Key: InstanceActiveTimeout, Flag: "instance-active-timeout", Default: "2m", Kind: Duration, Check: between(time.Second, aDay), Help: "how long instances of an offline node wait for its return before they end in Error"},
	{Key: StartTimeout, Flag: "start-timeout", Default: "90s", Kind: Duration, Check: between(time.Second, aDay), Help: "how long a VM may take to start, the pull of its template not counted"},
	{Key: PullTimeout, Flag: "pull-timeout", Default: "30m", Kind: Duration, Check: between(time.Minute, aDay), Help: "how long the pull of a template may go without progress before its instance ends in Error"},
	{Key: PushTimeout, Flag: "push-timeout", Default: "1h", Kind: Duration, Check: between(time.Minute, aDay), Help: "how long the push of a saved image may go without progress before its instance ends in Error"},
	{Key: UnknownVMThreshold, Flag: "unknown-vm-threshold", Default: "30", Kind: Int, Check: atLeast(1), Help: "reports before an orphaned VM is removed"},
	{Key: GracefulShutdown, Flag: "graceful-shutdown-timeout", Default: "10s", Kind: Duration, Check: between(0, aDay), Help: "how long a stop waits for open requests"},
	{Key: RequestTimeout, Flag: "request-timeout", Default: "15s", Kind: Duration, Check: between(time.Second, aDay), Help: "longest time of one request, long polls aside"},
	{Key: RunRegistry, Flag: "run-registry", Default: "false", Kind: Bool, Help: "run a registry in the same process"},
	{Key: RegistryBasePath, Flag: "registry-base-path", Default: dataDir("registry"), Kind: Path, Help: "storage directory of that registry"},
	{Key: RegistryListenAddress, Flag: "registry-listen-address", Default: ":8089", NoAuth: "127.0.0.1:8089", Kind: Addr, Help: "address of that registry's API"},
	vmListCacheTTL,
	scrubRate, maxPushes, maxPushReservation, maxLogRows, maxLogRowBytes,
	{Key: MaxWaiting, Flag: "max-waiting", Default: "40000", Kind: Int, Check: atLeast(1), Help: "instances that wait for a node at a time, and as many save requests that are pending or failed; one caller may have a quarter of either"},
	{Key: MaxWaitingSize, Flag: "max-waiting-size", Default: "256MB", Kind: Size, Check: sizeFrom(1 << 20), Help: "size of the records of instances that wait for a node, without their scripts, and as much of save requests that are pending or failed; one caller may have a quarter of either"},
	{Key: MaxScriptsSize, Flag: "max-scripts-size", Default: "256MB", Kind: Size, Check: sizeFrom(1 << 20), Help: "size of the startup scripts of all instances; one caller may have a quarter of it"},
	{Key: MaxIdempotencyKeys, Flag: "max-idempotency-keys", Default: "80000", Kind: Int, Check: atLeast(8), Help: "requests with an Idempotency-Key that are remembered; one caller may have a quarter of them"},
	{Key: MaxWatches, Flag: "max-watches", Default: "2000", Kind: Int, Check: atLeast(1), Help: "how many watches of instances and waits for events the controller serves at a time; a quarter of them may be one caller's"},
	{Key: VMNamePrefix, Flag: "vm-name-prefix", Default: "mgmtManaged-", Kind: String, Help: "what the name of every VM starts with"},
	{Key: Placement, Flag: "placement", Default: "spread", Kind: String, Check: oneOf("spread", "fit"), Help: "tie-break between equal nodes: spread VMs over all, or fit as many as possible on one"},
	{Key: LocalityWait, Flag: "locality-wait", Default: "10s", Kind: Duration, Check: between(0, time.Hour), Help: "how long a request may wait for a full node that has its version while another node has room; 0 is not at all"},
	{Key: LocalitySize, Flag: "locality-size", Default: "4GB", Kind: Size, Help: "how much would have to be pulled before a request waits so"},
	{Key: DistributeAtOnce, Flag: "distribute-at-once", Default: "32", Kind: Int, Check: atLeast(1), Help: "how many nodes pull for distributions at a time, of those that poll one controller"},
	{Key: ManageMACs, Flag: "manage-mac-addresses", Default: "false", Kind: Bool, Help: "give every instance of a stopped version a MAC address of its own"},
	{Key: MACRange, Flag: "mac-addr-range", Kind: String, Check: checkMACRange, Help: "the addresses for that, <FROM>-<TO>, both included"},
	{Key: EventLogging, Flag: "enable-event-logging", Default: "false", Kind: Bool, Help: "write what happens in the cloud to the registry's log of events"},
	{Key: EventLogURL, Flag: "event-log-url", Kind: Secret, Check: checkEndpoint, Help: "address to which each event is posted as JSON; it may hold a password"},
	{Key: BackupDir, Flag: "backup-dir", Kind: Path, Help: "directory for periodic backups of the records; without it none are taken"},
	{Key: BackupEvery, Flag: "backup-every", Default: "1h", Kind: Duration, Check: between(time.Minute, 7*aDay), Help: "time between two periodic backups"},
	{Key: BackupKeep, Flag: "backup-keep", Default: "24", Kind: Int, Check: atLeast(1), Help: "how many of the newest periodic backups stay"},
	licenseFile, licenseAuthority,
	{Key: PackagesDir, Flag: "packages-dir", Kind: Path, Help: "directory of the agent packages that nodes are updated with (default: pkg in the data directory)"},
	{Key: NoNodeUpgrades, Flag: "no-node-upgrades", Default: "false", Kind: Bool, Help: "update the agents of nodes only when asked to, not whenever a newer package is there"},
	enableMetrics, metricsPort, metricsPath,
	logLevel, logDir, centralLogging, keepLogs, maxLogSize,
}, access, controllerAccess)

// RegistryTable is the settings of a registry that runs alone.
var RegistryTable = slices.Concat(Table{
	{Key: BasePath, Flag: "base-path", Default: dataDir("registry"), Kind: Path, Help: "storage directory"},
	{Key: ListenAddr, Flag: "listen-addr", Default: ":8089", NoAuth: "127.0.0.1:8089", Kind: Addr, Help: "address of the registry's API"},
	vmListCacheTTL,
	scrubRate, maxPushes, maxPushReservation, maxLogRows, maxLogRowBytes,
	enableMetrics, metricsPort, metricsPath,
	logLevel, logDir, centralLogging, keepLogs, maxLogSize,
}, access, registryAccess)

// StorageTable is the settings of the commands that manage a registry's storage.
var StorageTable = append(Table{
	{Key: BasePath, Flag: "base-path", Default: dataDir("registry"), Kind: Path, Help: "storage directory; when a registry has it open, that one is asked"},
	{Key: Registry, Flag: "registry", Kind: String, Check: checkURL, Help: "address of a running registry to ask, instead of a directory"},
}, caller...)

// ClientTable is the settings of the commands that call a controller.
var ClientTable = append(Table{
	{Key: Controller, Flag: "controller", Default: "http://127.0.0.1:8090", Kind: String, Check: checkURL, Help: "address of the controller to ask"},
	{Key: Context, Flag: "context", Kind: String, Help: "which context of client.yaml to use, instead of its current one"},
}, caller...)

// caller is the settings of a client of a service: its credentials, and what it trusts.
var caller = Table{
	{Key: RootToken, Flag: "root-token", File: "token-file", Kind: Secret, Help: "root token; prefer the environment, or the file that " + RootToken + "_FILE names"},
	{Key: ClientKeyID, Flag: "key-id", Kind: String, Help: "API key ID"},
	{Key: ClientKeyString, Flag: "key-string", File: "key-file", Kind: SecretText, Private: true, Help: "private key of that user key, as it was answered or in PEM form; better in the environment or in a file"},
	{Key: ClientBearer, Flag: "bearer", File: "bearer-file", Kind: Secret, Private: true, Help: "token (JWT) of the identity provider to be known by; better in the environment or in a file"},
	{Key: TrustedCA, Flag: "ca-cert", Kind: Path, Help: "PEM file of the authorities to trust instead of the system's"},
	{Key: ClientCert, Flag: "client-cert", Kind: Path, Help: "client certificate (PEM)"},
	{Key: ClientKey, Flag: "client-key", Kind: Path, Help: "PEM file of its key"},
	{Key: SkipVerification, Flag: "skip-tls-verification", Default: "false", Kind: Bool, Help: "skip TLS verification (testing only)"},
}

var scrubRate = Setting{
	Key: ScrubRate, Flag: "scrub-rate", Default: "50MB", Kind: Size,
	Help: "how much of the registry's storage is read and verified in a second, in the background; 0B: none",
}

// vmListCacheTTL is an upper bound on the age of lists, which are always current.
var vmListCacheTTL = Setting{
	Key: VMListCacheTTL, Flag: "vm-list-cache-ttl", Default: "0s", Kind: Duration, Check: between(0, aDay),
	Help: "how old a list of templates may be at most; lists are always current, which every value allows",
}

// The limits of open streams and request sizes of a registry's callers.
var (
	maxPushes = Setting{
		Key: MaxPushes, Flag: "max-pushes", Default: "256", Kind: Int, Check: atLeast(1),
		Help: "unfinished pushes at a time; one caller may have a quarter of them",
	}
	maxPushReservation = Setting{
		Key: MaxPushReservation, Flag: "max-push-reservation", Default: "50", Kind: Int, Check: percent,
		Help: "percent of the free space that the unfinished pushes of one caller may reserve",
	}
	maxLogRows = Setting{
		Key: MaxLogRows, Flag: "max-log-rows", Default: "600000", Kind: Int, Check: atLeast(1000),
		Help: "log rows that are taken in a minute; one caller may send a quarter of them",
	}
	maxLogRowBytes = Setting{
		Key: MaxLogRowBytes, Flag: "max-log-row-bytes", Default: "256MB", Kind: Size, Check: sizeFrom(1 << 20),
		Help: "bytes of log rows that are taken in a minute; one caller may send a quarter of them",
	}
)

// The settings of the metrics, which a controller shares with a registry in its process.
var (
	enableMetrics = Setting{Key: EnableMetrics, Flag: "enable-metrics", Default: "false", Kind: Bool, Help: "serve metrics for Prometheus, on a port of their own"}
	metricsPort   = Setting{Key: MetricsPort, Flag: "metrics-port", Default: "2112", Kind: Int, Check: portNumber, Help: "port of the metrics, on the host of the API's address; 0: any"}
	metricsPath   = Setting{Key: MetricsPath, Flag: "metrics-path", Default: "/metrics", Kind: String, Check: urlPath, Help: "path of the metrics"}
)

var licenseFile = Setting{
	Key: LicenseFile, Flag: "license-file", Kind: Path,
	Help: "file with the controller's licence key; without one everything is open",
}

var licenseAuthority = Setting{
	Key: LicenseAuthority, Flag: "license-authority", Kind: Path,
	Help: "file with the public keys that licences are judged by (default: authority.pub in /etc/buildyard and in the user's configuration folder)",
}

var logLevel = Setting{
	Key: LogLevel, Flag: "log-level", Default: "info", Kind: String,
	Check: oneOf("debug", "info", "warn", "error"), Help: "minimum log level: debug, info, warn or error",
}

var logDir = Setting{
	Key: LogDir, Flag: "log-dir", Kind: Path,
	Help: "directory in which the log is kept in files too, within the limits of central logs; without it the log goes to stderr alone",
}

var centralLogging = Setting{
	Key: CentralLogging, Flag: "enable-central-logging", Default: "false", Kind: Bool,
	Help: "send the log to the registry's central logs too; a controller has its nodes do so as well",
}

var keepLogs = Setting{
	Key: KeepLogs, Also: "KEEP_LOGS_FOR", Flag: "keep-logs-for", Default: "7", Kind: Days, Check: daysBetween(time.Hour, 3650*aDay),
	Help: "how many days central logs, and the logs of VMs that failed, are kept",
}

var maxLogSize = Setting{
	Key: MaxLogSize, Also: "MAX_LOG_SIZE", Flag: "max-log-size", Default: "1024", Kind: Megabytes, Check: megabytesFrom(1 << 20),
	Help: "how many megabytes the central logs may take, and those of VMs that failed; the oldest go",
}

// dataDir is the default directory for the data of a service: the system's directory for root, the
// user's for others.
func dataDir(service string) string {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib/buildyard", service)
	}
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "buildyard", service)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "share", "buildyard", service)
}
