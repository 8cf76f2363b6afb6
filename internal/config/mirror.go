package config

import "slices"

// Keys of the settings that a mirror of a registry alone has.
const (
	MirrorOrigin  = "SVC_MIRROR_ORIGIN"
	MirrorMaxSize = "SVC_MIRROR_MAX_SIZE"
)

// MirrorTable is the settings of a mirror of a registry.
var MirrorTable = slices.Concat(Table{
	{
		Key: MirrorOrigin, Flag: "origin", Kind: String, Check: checkURL,
		Help: "URL of the registry whose layers the mirror serves; required",
	},
	{Key: BasePath, Flag: "base-path", Default: defaultDataDir("mirror"), Kind: Path, Help: "directory of the layers"},
	{
		Key: MirrorMaxSize, Flag: "max-size", Default: "200GB", Kind: Size, Check: sizeAtLeast(1 << 20),
		Help: "maximum size of the stored layers; the ones that were not used for longest are removed first",
	},
	{Key: ListenAddr, Flag: "listen-addr", Default: ":8089", Kind: Addr, Help: "listen address for nodes"},
	{
		Key: TrustedCA, Flag: "ca-cert", Kind: Path,
		Help: "PEM file with the CAs to trust at the registry (default: system CAs)",
	},
	{Key: ClientCert, Flag: "client-cert", Kind: Path, Help: "client certificate (PEM) for the registry"},
	{Key: ClientKey, Flag: "client-key", Kind: Path, Help: "private key of the client certificate (PEM)"},
	enableMetrics, metricsPort, metricsPath, logLevelSetting,
}, accessTable.only(AllowedHosts, MaxSlowClients, UseHTTPS, ServerCert, ServerKey, MinTLSVersion))

// only returns the settings with some keys.
func (t Table) only(keys ...string) Table {
	return slices.DeleteFunc(slices.Clone(t), func(s Setting) bool { return !slices.Contains(keys, s.Key) })
}
