package forward

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// Files of a VM's directory.
const (
	configFile = "forward.json"       // Config: written before the forwarder is started
	portsFile  = "forward-ports.json" // Ports: written by the forwarder once all ports are open
	lockFile   = "forward.lock"       // locked by the forwarder while it lives; contains its identity
	logFile    = "forward.log"        // what the forwarder prints

	maxFileBytes     = 1 << 20 // of a file that is read
	maxPasswordBytes = 8       // of a screen, as the protocol uses no more
)

// Config is what a forwarder serves.
type Config struct {
	Rules []hv.PortRule `json:"rules"`
	VNC   *VNCConfig    `json:"screen,omitempty"` // nil = the screen cannot be reached
}

// VNCConfig is the VNC port of a VM.
type VNCConfig struct {
	Listen       string `json:"listen"`        // address of the host to listen on
	Port         int    `json:"port"`          // 0 = a free one from hv.FirstVNCPort up
	PasswordFile string `json:"password_file"` // name in the VM's directory; only the owner may read it
}

// Ports are the ports in effect of a forwarder.
type Ports struct {
	cliproc.Process               // the forwarder
	Rules           []hv.PortRule `json:"rules,omitempty"`    // with their host addresses and ports
	VNCPort         int           `json:"vnc_port,omitempty"` // 0 = none
	Error           string        `json:"error,omitempty"`    // why the ports could not be opened; "" = they are
}

// Validate returns an hv.ErrRefused for what no forwarder can serve, otherwise nil.
func (c Config) Validate() error {
	if len(c.Rules) > hv.MaxPorts {
		return hv.RefusedError("%d port rules: want at most %d", len(c.Rules), hv.MaxPorts)
	}
	for _, r := range c.Rules {
		if err := r.Validate(); err != nil {
			return err
		}
		if r.Protocol == "udp" {
			return hv.RefusedError("port rule %q: udp cannot be forwarded", r.Name)
		}
	}
	if c.VNC != nil && (c.VNC.Port < 0 || c.VNC.Port > 65535) {
		return hv.RefusedError("VNC port %d: want 0-65535", c.VNC.Port)
	}
	return nil
}

// WriteConfig records what the forwarder of the VM in dir is to serve from its next start on.
func WriteConfig(dir string, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return writeJSON(dir, configFile, c)
}

func readConfig(dir string) (c Config, err error) {
	if err := readJSON(dir, configFile, &c); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// readPassword reads the screen's password, which no other user may be able to read.
func readPassword(dir, name string) (string, error) {
	b, mode, err := readFile(dir, name)
	if err != nil {
		return "", fmt.Errorf("read the VNC password: %w", err)
	}
	if mode.Perm()&0o077 != 0 {
		return "", fmt.Errorf("the VNC password file %s has the mode %04o: want 0600", name, mode.Perm())
	}
	password := strings.TrimSuffix(string(b), "\n")
	if password == "" || len(password) > maxPasswordBytes {
		return "", fmt.Errorf("the VNC password file %s has %d bytes: want 1-%d", name, len(password), maxPasswordBytes)
	}
	return password, nil
}

// writeJSON replaces a file. It is not synced: a forwarder does not survive a crash of the host.
func writeJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.WriteFile(name+".part", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return root.Rename(name+".part", name)
}

func readJSON(dir, name string, v any) error {
	b, _, err := readFile(dir, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readFile reads a file of a VM's directory with a bounded size.
func readFile(dir, name string) ([]byte, os.FileMode, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFileBytes)
	}
	return b, info.Mode(), err
}

// ErrNotRunning reports that no forwarder runs for a VM.
var ErrNotRunning = errors.New("the VM has no running port forwarder")

// ReadPorts returns the ports that the forwarder of the VM in dir has opened. With ErrNotRunning they are
// those of the last one, if there was any.
func ReadPorts(dir string) (Ports, error) {
	var p Ports
	err := readJSON(dir, portsFile, &p)
	if errors.Is(err, os.ErrNotExist) {
		return p, ErrNotRunning
	}
	if err != nil {
		return p, err
	}
	if p.Error != "" || !p.IsAlive() {
		return p, ErrNotRunning
	}
	return p, nil
}
