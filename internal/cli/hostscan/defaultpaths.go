package hostscan

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
)

// defaultPaths are the default locations of the service's files. "" is none,
// without a home directory.
type defaultPaths struct {
	Config   string // file
	State    string // directory of the inventory and the token
	Log      string // file
	Database string // file, shared with the image scanner
}

// newDefaultPaths returns those of this user on this system.
func newDefaultPaths() defaultPaths {
	home, _ := os.UserHomeDir()
	return pathsFor(runtime.GOOS, os.Geteuid() == 0, home, os.Getenv)
}

// defaultNodeFile returns that of an agent of this user.
func defaultNodeFile() string {
	home, _ := os.UserHomeDir()
	return nodeFile(os.Geteuid() == 0, home, os.Getenv)
}

// nodeFile returns where an agent of the same user stores the identity of its node.
func nodeFile(root bool, home string, env func(string) string) string {
	dir := "/var/lib/buildyard/node"
	if data := env("XDG_DATA_HOME"); filepath.IsAbs(data) {
		dir = filepath.Join(data, "buildyard", "node")
	} else if !root {
		dir = filepath.Join(home, ".local", "share", "buildyard", "node")
	}
	return filepath.Join(dir, "node.json")
}

func pathsFor(system string, root bool, home string, env func(string) string) defaultPaths {
	in := func(dir string, rest ...string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(append([]string{dir}, rest...)...)
	}
	if !root && home == "" {
		return defaultPaths{}
	}
	switch {
	case system == "darwin":
		library := in(home, "Library")
		if root {
			library = "/Library"
		}
		support := in(library, "Application Support", "buildyard")
		p := defaultPaths{
			Config: in(support, "hostscan.yml"), State: in(support, "hostscan"),
			Log:      in(library, "Logs", "buildyard", "hostscan.log"),
			Database: in(support, "vuln.db"),
		}
		if !root {
			p.Database = in(library, "Caches", "buildyard", "vuln.db")
		}
		return p
	case root:
		return defaultPaths{
			Config: "/etc/buildyard/hostscan.yml", State: "/var/lib/buildyard/hostscan",
			Log:      "/var/log/buildyard/hostscan.log",
			Database: "/var/lib/buildyard/vuln.db",
		}
	}
	config := cmp.Or(env("XDG_CONFIG_HOME"), in(home, ".config"))
	state := cmp.Or(env("XDG_STATE_HOME"), in(home, ".local", "state"))
	cache := cmp.Or(env("XDG_CACHE_HOME"), in(home, ".cache"))
	return defaultPaths{
		Config: in(config, "buildyard", "hostscan.yml"), State: in(state, "buildyard", "hostscan"),
		Log: in(state, "buildyard", "hostscan", "hostscan.log"), Database: in(cache, "buildyard", "vuln.db"),
	}
}
