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
	EtcdCACert            = "SVC_ETCD_CA_CERT"
	EtcdCert              = "SVC_ETCD_CERT"
	EtcdKey               = "SVC_ETCD_KEY"
	EtcdUsername          = "SVC_ETCD_USERNAME"
	EtcdPassword          = "SVC_ETCD_PASSWORD" //nolint:gosec // the name of a setting
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
	DiskAlarm             = "SVC_DISK_ALARM"
	DistributeAtOnce      = "SVC_DISTRIBUTE_AT_ONCE" // the name of the setting (glossary:allow)
	EventLogging          = "SVC_ENABLE_EVENT_LOGGING"
	EventLogURL           = "SVC_EVENT_LOG_URL"
	BackupDir             = "SVC_BACKUP_DIR"
	BackupEvery           = "SVC_BACKUP_EVERY"
	BackupKeep            = "SVC_BACKUP_KEEP"
	BasePath              = "SVC_BASE_PATH"
	ScrubRate             = "SVC_SCRUB_RATE"
	PeerSums              = "SVC_PEER_SUMS"
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
	AdvertiseURLs         = "SVC_ADVERTISE_URLS"
	AdvertiseCA           = "SVC_ADVERTISE_CA"
	SaveFallback          = "SVC_SAVE_FALLBACK"
	SkipVerification      = "SVC_CLIENT_SKIP_TLS_VERIFICATION"
)

// maxTimeout bounds every timeout: a longer one is most likely a wrong unit.
const maxTimeout = 24 * time.Hour

// ControllerTable is the settings of the controller, alone or with a registry in the
// same process.
var ControllerTable = slices.Concat(Table{
	{Key: Registry, Flag: "registry", Kind: String, Check: checkURL, Help: "registry URL for nodes and clients"},
	{
		Key: LocalRegistry, Flag: "local-registry", Kind: String, Check: checkURL,
		Help: "registry URL for the controller (default: that of --registry)",
	},
	{
		Key: PushRegistry, Flag: "push-registry", Kind: String, Check: checkURL,
		Help: "registry URL for pushes of saved images (default: that of --registry)",
	},
	{
		Key: ListenAddr, Flag: "listen-addr", Default: ":8090", NoAuthDefault: "127.0.0.1:8090", Kind: Addr,
		Help: "listen address of the API and the portal",
	},
	{
		Key: DataDir, Flag: "data-dir", Default: defaultDataDir("controller"), Kind: Path,
		Help: "data directory of the controller",
	},
	{
		Key: EtcdEndpoints, Flag: "etcd-endpoints", Kind: List, Check: checkURLs,
		Help: "endpoints of an external etcd cluster; without them the store is embedded",
	},
	{
		Key: EtcdCACert, Flag: "etcd-ca-cert", Kind: Path,
		Help: "PEM file with the CAs to trust at the etcd cluster (default: system CAs)",
	},
	{
		Key: EtcdCert, Flag: "etcd-cert", Kind: Path,
		Help: "PEM file of the client certificate for the etcd cluster with its chain; read at each connection",
	},
	{Key: EtcdKey, Flag: "etcd-key", Kind: Path, Help: "PEM file of the private key of that certificate"},
	{
		Key: EtcdUsername, Flag: "etcd-username", Kind: String,
		Help: "etcd user; without it the name in the client certificate counts",
	},
	{
		Key: EtcdPassword, Flag: "etcd-password", Kind: Secret, Private: true,
		Help: "password of that user; prefer the file named by " + EtcdPassword + "_FILE",
	},
	{
		Key: Standalone, Flag: "standalone", Kind: String, Check: checkBool,
		Help: "true requires the embedded store, false an external etcd (" + EtcdEndpoints +
			"); default: by the endpoints",
	},
	{Key: InstanceTimeOut, Flag: "instance-time-out", Default: "1m", Kind: Duration, Check: durationBetween(0,
		maxTimeout), Help: "retention of the records of terminated instances"},
	{
		Key: NodeActiveTimeout, Flag: "node-active-timeout", Default: "2m", Kind: Duration,
		Check: durationBetween(time.Second,
			maxTimeout), Help: "heartbeat timeout before Offline",
	},
	{
		Key: InstanceActiveTimeout, Flag: "instance-active-timeout", Default: "2m", Kind: Duration,
		Check: durationBetween(time.Second, maxTimeout),
		Help:  "time after which instances of an Offline node end in Error",
	},
	{Key: StartTimeout, Flag: "start-timeout", Default: "90s", Kind: Duration, Check: durationBetween(time.Second,
		maxTimeout), Help: "start timeout of a VM, without the pull of its template"},
	{Key: PullTimeout, Flag: "pull-timeout", Default: "30m", Kind: Duration, Check: durationBetween(time.Minute,
		maxTimeout), Help: "time without progress after which a pull fails and its instance goes to Error"},
	{Key: PushTimeout, Flag: "push-timeout", Default: "1h", Kind: Duration, Check: durationBetween(time.Minute,
		maxTimeout), Help: "time without progress after which a push fails and its instance goes to Error"},
	{
		Key: UnknownVMThreshold, Flag: "unknown-vm-threshold", Default: "30", Kind: Int, Check: intAtLeast(1),
		Help: "number of reports of an orphaned VM before it is removed",
	},
	{Key: GracefulShutdown, Flag: "graceful-shutdown-timeout", Default: "10s", Kind: Duration, Check: durationBetween(0,
		maxTimeout), Help: "shutdown timeout for open requests"},
	{Key: RequestTimeout, Flag: "request-timeout", Default: "15s", Kind: Duration, Check: durationBetween(time.Second,
		maxTimeout), Help: "request timeout, except for long polls"},
	{Key: RunRegistry, Flag: "run-registry", Default: "false", Kind: Bool, Help: "run a registry in the same process"},
	{
		Key: RegistryBasePath, Flag: "registry-base-path", Default: defaultDataDir("registry"), Kind: Path,
		Help: "storage directory of that registry",
	},
	{
		Key: RegistryListenAddress, Flag: "registry-listen-address", Default: ":8089", NoAuthDefault: "127.0.0.1:8089",
		Kind: Addr, Help: "listen address of that registry",
	},
	vmListCacheTTLSetting,
	scrubRateSetting, peerSumsSetting, maxPushes, maxPushReservation, maxLogRows, maxLogRowBytes,
	{
		Key: MaxWaiting, Flag: "max-waiting", Default: "40000", Kind: Int, Check: intAtLeast(1),
		Help: "maximum pending instances, and as many pending or failed save requests; a quarter per caller",
	},
	{
		Key: MaxWaitingSize, Flag: "max-waiting-size", Default: "256MB", Kind: Size, Check: sizeAtLeast(1 << 20),
		Help: "maximum size of the records of pending instances without their scripts, and as much of pending or " +
			"failed save requests; a quarter per caller",
	},
	{
		Key: MaxScriptsSize, Flag: "max-scripts-size", Default: "256MB", Kind: Size, Check: sizeAtLeast(1 << 20),
		Help: "maximum size of the startup scripts of all instances; a quarter per caller",
	},
	{
		Key: MaxIdempotencyKeys, Flag: "max-idempotency-keys", Default: "80000", Kind: Int, Check: intAtLeast(8),
		Help: "maximum stored idempotency keys; a quarter per caller",
	},
	{
		Key: MaxWatches, Flag: "max-watches", Default: "2000", Kind: Int, Check: intAtLeast(1),
		Help: "maximum concurrent instance watches and event waits; a quarter per caller",
	},
	{Key: VMNamePrefix, Flag: "vm-name-prefix", Default: "mgmtManaged-", Kind: String, Help: "prefix of VM names"},
	{Key: Placement, Flag: "placement", Default: "spread", Kind: String, Check: oneOf("spread",
		"fit"), Help: "tie-break between equal nodes: spread VMs over all, or fit as many as possible on one"},
	{
		Key: LocalityWait, Flag: "locality-wait", Default: "10s", Kind: Duration, Check: durationBetween(0,
			time.Hour),
		Help: "maximum wait for a full node with the version cached while another node has capacity; 0 disables the " +
			"wait",
	},
	{
		Key: LocalitySize, Flag: "locality-size", Default: "4GB", Kind: Size,
		Help: "minimum size of a pull for which instances wait for a node with the version cached",
	},
	{
		Key: DiskAlarm, Flag: "disk-alarm", Default: "10GiB", Kind: Size,
		Help: "free space below which a disk of the controller, the registry or a node raises an alarm, if it is " +
			"less than 20 % of the disk; 0B: no alarms",
	},
	{
		Key: DistributeAtOnce, Flag: "distribute-at-once", Default: "32", Kind: Int, Check: intAtLeast(1),
		Help: "maximum concurrent distribution pulls by the nodes of one controller replica",
	},
	{
		Key: ManageMACs, Flag: "manage-mac-addresses", Default: "false", Kind: Bool,
		Help: "assign a managed MAC address to every instance of a stopped version",
	},
	{
		Key: MACRange, Flag: "mac-addr-range", Kind: String, Check: checkMACRange,
		Help: "range of managed MAC addresses, <FROM>-<TO>, both included",
	},
	{
		Key: EventLogging, Flag: "enable-event-logging", Default: "false", Kind: Bool,
		Help: "write events to the registry's event log",
	},
	{
		Key: EventLogURL, Flag: "event-log-url", Kind: Secret, Check: checkEndpoint,
		Help: "URL to which each event is posted as JSON; may contain a password",
	},
	{Key: BackupDir, Flag: "backup-dir", Kind: Path, Help: "directory of periodic backups (default: no backups)"},
	{Key: BackupEvery, Flag: "backup-every", Default: "1h", Kind: Duration, Check: durationBetween(time.Minute,
		7*maxTimeout), Help: "interval of periodic backups"},
	{
		Key: BackupKeep, Flag: "backup-keep", Default: "24", Kind: Int, Check: intAtLeast(1),
		Help: "number of periodic backups to keep",
	},
	licenseFileSetting, licenseAuthoritySetting,
	{
		Key: AdvertiseURLs, Flag: "advertise-urls", Kind: List, Check: checkControllerURLs,
		Help: "URLs of the controllers of this cloud that its nodes are to use, the preferred one first",
	},
	{
		Key: AdvertiseCA, Flag: "advertise-ca", Kind: Path,
		Help: "PEM file with certificate authorities that nodes are to trust in addition, for " + AdvertiseURLs,
	},
	{
		Key: PackagesDir, Flag: "packages-dir", Kind: Path,
		Help: "directory of the agent packages (default: pkg in the data directory)",
	},
	{
		Key: NoNodeUpgrades, Flag: "no-node-upgrades", Default: "false", Kind: Bool,
		Help: "update node agents on request only, not whenever a newer package exists",
	},
	{
		Key: SaveFallback, Flag: "save-fallback", Kind: String, Check: oneOf(SaveFallbackStop),
		Help: "what a save with suspend does on a node that cannot suspend the guest: stop shuts it down; otherwise " +
			"the save is refused",
	},
	enableMetrics, metricsPort, metricsPath,
	logLevelSetting, logDirSetting, centralLoggingSetting, keepLogsSetting, maxLogSizeSetting,
}, backendTable, accessTable, controllerAccessTable)

// SaveFallbackStop is the value of SaveFallback with which a guest is shut down.
const SaveFallbackStop = "stop"

// RegistryTable is the settings of a registry that runs alone.
var RegistryTable = slices.Concat(Table{
	{Key: BasePath, Flag: "base-path", Default: defaultDataDir("registry"), Kind: Path, Help: "storage directory"},
	{
		Key: ListenAddr, Flag: "listen-addr", Default: ":8089", NoAuthDefault: "127.0.0.1:8089", Kind: Addr,
		Help: "listen address of the registry API",
	},
	vmListCacheTTLSetting,
	scrubRateSetting, peerSumsSetting, maxPushes, maxPushReservation, maxLogRows, maxLogRowBytes,
	enableMetrics, metricsPort, metricsPath,
	logLevelSetting, logDirSetting, centralLoggingSetting, keepLogsSetting, maxLogSizeSetting,
}, backendTable, accessTable, registryAccessTable)

// StorageTable is the settings of the commands that manage a registry's storage.
var StorageTable = append(Table{
	{
		Key: BasePath, Flag: "base-path", Default: defaultDataDir("registry"), Kind: Path,
		Help: "storage directory; if a registry uses it, that registry runs the job",
	},
	{
		Key: Registry, Flag: "registry", Kind: String, Check: checkURL,
		Help: "URL of a running registry, instead of a directory",
	},
}, callerTable...)

// ClientTable is the settings of the commands that call a controller.
var ClientTable = append(Table{
	{
		Key: Controller, Flag: "controller", Default: "http://127.0.0.1:8090", Kind: String, Check: checkURL,
		Help: "controller URL",
	},
	{Key: Context, Flag: "context", Kind: String, Help: "context of client.yaml (default: its current context)"},
}, callerTable...)

// callerTable is the settings of a client of a service: its credentials, and what it trusts.
var callerTable = Table{
	{
		Key: RootToken, Flag: "root-token", FileFlag: "token-file", Kind: Secret,
		Help: "root token; prefer the environment, or the file that " + RootToken + "_FILE names",
	},
	{Key: ClientKeyID, Flag: "api-key-id", Kind: String, Help: "API key ID"},
	{
		Key: ClientKeyString, Flag: "api-key-string", FileFlag: "api-key-file", Kind: SecretText, Private: true,
		Help: "private key of that API key, base64 or PEM; prefer the environment or a file",
	},
	{
		Key: ClientBearer, Flag: "bearer", FileFlag: "bearer-file", Kind: Secret, Private: true,
		Help: "token (JWT) of the identity provider; prefer the environment or a file",
	},
	{Key: TrustedCA, Flag: "ca-cert", Kind: Path, Help: "PEM file with the CAs to trust (default: system CAs)"},
	{Key: ClientCert, Flag: "client-cert", Kind: Path, Help: "client certificate (PEM)"},
	{Key: ClientKey, Flag: "client-key", Kind: Path, Help: "private key of the client certificate (PEM)"},
	{
		Key: SkipVerification, Flag: "skip-tls-verification", Default: "false", Kind: Bool,
		Help: "skip TLS verification (testing only)",
	},
}

var scrubRateSetting = Setting{
	Key: ScrubRate, Flag: "scrub-rate", Default: "50MB", Kind: Size,
	Help: "bytes of storage verified per second in the background; 0B: disabled",
}

var peerSumsSetting = Setting{
	Key: PeerSums, Flag: "peer-sums", Default: "false", Kind: Bool,
	Help: "have pushes include the sums by which nodes verify what they read from each other; programs of releases " +
		"before this one cannot read such versions",
}

// vmListCacheTTLSetting is an upper bound on the age of lists, which are always current.
var vmListCacheTTLSetting = Setting{
	Key: VMListCacheTTL, Flag: "vm-list-cache-ttl", Default: "0s", Kind: Duration,
	Check: durationBetween(0, maxTimeout),
	Help:  "accepted for compatibility: maximum age of template lists; lists are always current",
}

// The limits of open streams and request sizes of a registry's callers.
var (
	maxPushes = Setting{
		Key: MaxPushes, Flag: "max-pushes", Default: "256", Kind: Int, Check: intAtLeast(1),
		Help: "maximum unfinished pushes; a quarter per caller",
	}
	maxPushReservation = Setting{
		Key: MaxPushReservation, Flag: "max-push-reservation", Default: "50", Kind: Int, Check: checkPercent,
		Help: "percent of the free space that the unfinished pushes of one caller may reserve",
	}
	maxLogRows = Setting{
		Key: MaxLogRows, Flag: "max-log-rows", Default: "600000", Kind: Int, Check: intAtLeast(1000),
		Help: "maximum log rows per minute; a quarter per caller",
	}
	maxLogRowBytes = Setting{
		Key: MaxLogRowBytes, Flag: "max-log-row-bytes", Default: "256MB", Kind: Size, Check: sizeAtLeast(1 << 20),
		Help: "maximum bytes of log rows per minute; a quarter per caller",
	}
)

// The settings of the metrics, which a controller shares with a registry in its process.
var (
	enableMetrics = Setting{
		Key: EnableMetrics, Flag: "enable-metrics", Default: "false", Kind: Bool,
		Help: "serve Prometheus metrics on a separate port",
	}
	metricsPort = Setting{
		Key: MetricsPort, Flag: "metrics-port", Default: "2112", Kind: Int, Check: checkPort,
		Help: "metrics port, on the host of the API address; 0: any free port",
	}
	metricsPath = Setting{
		Key: MetricsPath, Flag: "metrics-path", Default: "/metrics", Kind: String, Check: checkURLPath,
		Help: "URL path of the metrics",
	}
)

var licenseFileSetting = Setting{
	Key: LicenseFile, Flag: "license-file", Kind: Path,
	Help: "license file of the controller; without one all features are enabled",
}

var licenseAuthoritySetting = Setting{
	Key: LicenseAuthority, Flag: "license-authority", Kind: Path,
	Help: "file with the public keys of the license authority (default: authority.pub in /etc/buildyard and in the " +
		"user's configuration directory)",
}

var logLevelSetting = Setting{
	Key: LogLevel, Flag: "log-level", Default: "info", Kind: String,
	Check: oneOf("debug", "info", "warn", "error"), Help: "minimum log level: debug, info, warn or error",
}

var logDirSetting = Setting{
	Key: LogDir, Flag: "log-dir", Kind: Path,
	Help: "directory for log files, bounded like central logs (default: log to stderr only)",
}

var centralLoggingSetting = Setting{
	Key: CentralLogging, Flag: "enable-central-logging", Default: "false", Kind: Bool,
	Help: "send the log to the registry's central logs; on a controller, its nodes' logs too",
}

var keepLogsSetting = Setting{
	Key: KeepLogs, Alias: "KEEP_LOGS_FOR", Flag: "keep-logs-for", Default: "7", Kind: Days,
	Check: daysBetween(time.Hour, 3650*maxTimeout),
	Help:  "retention of central logs and VM failure logs, in days",
}

var maxLogSizeSetting = Setting{
	Key: MaxLogSize, Alias: "MAX_LOG_SIZE", Flag: "max-log-size", Default: "1024", Kind: Megabytes,
	Check: megabytesAtLeast(1 << 20),
	Help:  "maximum size of central logs and of VM failure logs, in MiB; the oldest are removed first",
}

// defaultDataDir is the default directory for the data of a service: the system's directory for root, the
// user's for others.
func defaultDataDir(service string) string {
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
