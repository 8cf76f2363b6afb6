// Package datadir is the data directory of a node: the paths of its files, the identity it joined
// with, and the lock that keeps a second agent out.
//
// It is neither the journal nor the cache; it only has their paths.
//
// Invariant: node.json is replaced as a whole and readable by its owner only, so that a credential
// is never half written and never visible to another user.
package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

// Dir is a data directory. The zero value is unusable; see At.
type Dir struct{ path string }

// At returns the data directory at dir, made absolute. Nothing is created.
func At(dir string) (Dir, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Dir{}, fmt.Errorf("find data directory: %w", err)
	}
	return Dir{dir}, nil
}

// DefaultPath is the data directory if none is configured: in the user's data directory
// ($XDG_DATA_HOME), which for root is /var/lib unless it is set.
func DefaultPath() string {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "buildyard", "node")
	}
	if os.Geteuid() == 0 {
		return "/var/lib/buildyard/node"
	}
	user, err := os.UserHomeDir()
	if err != nil {
		user = "."
	}
	return filepath.Join(user, ".local", "share", "buildyard", "node")
}

// Path returns the path of the data directory.
func (h Dir) Path() string { return h.path }

// JournalDir is the directory of the journal.
func (h Dir) JournalDir() string { return filepath.Join(h.path, "instances") }

// TemplateDir is the directory of the cached versions.
func (h Dir) TemplateDir() string { return filepath.Join(h.path, "templates") }

// TemplatesDir is the directory of the hypervisor driver.
func (h Dir) TemplatesDir() string { return filepath.Join(h.path, "vms") }

// TartHome returns the directory of the VMs of the driver tart.
func (h Dir) TartHome() string { return filepath.Join(h.path, "tart") }

// AnkaDir returns the directory of the records of the driver anka, whose VMs are in the library of their user.
func (h Dir) AnkaDir() string { return filepath.Join(h.path, "anka") }

// SaveDir is the directory of unfinished saves, on the file system of Templates.
func (h Dir) SaveDir() string { return filepath.Join(h.path, "saves") }

// CacheJobFile is the file of the cache jobs.
func (h Dir) CacheJobFile() string { return filepath.Join(h.path, "errands.json") }

// LocalTemplateDir is the directory of the local templates.
func (h Dir) LocalTemplateDir() string { return filepath.Join(h.path, "library") }

// RegistriesFile is the file of named registries.
func (h Dir) RegistriesFile() string { return filepath.Join(h.path, "registries.json") }

// USBClaimsFile is the file of the claims of USBClaimsFile devices.
func (h Dir) USBClaimsFile() string { return filepath.Join(h.path, "usb.json") }

// AgentVersionsDir is the directory of the agent versions that updates have installed.
func (h Dir) AgentVersionsDir() string { return filepath.Join(h.path, "versions") }

// UpdateStateFile is the file that defines which of them runs.
func (h Dir) UpdateStateFile() string { return filepath.Join(h.path, "update.json") }

// UpdateKeysFile is the file of the public keys that agent packages must be signed with.
func (h Dir) UpdateKeysFile() string { return filepath.Join(h.path, "update.pub") }

// KeyFile is the file of the private key of the API key that the node joined with, unless its
// owner stores that in another file.
func (h Dir) KeyFile() string { return filepath.Join(h.path, "user.key") }

// ConnectionsFile is the record of the connections to controllers, see package connection.
func (h Dir) ConnectionsFile() string { return filepath.Join(h.path, "connections.json") }

// SocketDir is the directory of the running agent's sockets; only its owner can access it.
func (h Dir) SocketDir() string { return filepath.Join(h.path, "run") }

// LazySocketDir is the directory of the sockets of disks that VMs read before they are complete.
func (h Dir) LazySocketDir() string { return filepath.Join(h.path, "nbd") }

// PeerFile is the file of the certificate and the private key by which other nodes recognize this one.
func (h Dir) PeerFile() string { return filepath.Join(h.path, "peer.pem") }

func (h Dir) identityFile() string { return filepath.Join(h.path, "node.json") }

// Create creates the data directory.
func (h Dir) Create() error {
	if err := os.MkdirAll(h.path, 0o755); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return nil
}

// Format is the version of the data directory: the forms of the files in it.
const Format = 1

// formats are the versions of a data directory that this agent supports.
var formats = farm.SupportedVersions{
	Subject: "Node data format", Oldest: 1, Newest: Format, Reader: "this agent",
	IfNewer: "start the release of buildnode that ran here last",
	IfOlder: "start the release of buildnode between the one that ran here last and this one first",
}

// Identity is the identity and the settings that a node joined with.
type Identity struct {
	Format          int                  `json:"format,omitempty"` // of the data directory; 0: 1
	NodeID          string               `json:"node_id"`
	Credential      string               `json:"credential"` // secret
	ControllerURL   string               `json:"controller"` // URL of the controller in use
	Cloud           Cloud                `json:"cloud,omitzero"`
	RegistryAddress string               `json:"registry,omitempty"`
	Name            string               `json:"name"`
	Host            string               `json:"host"` // address under which its TemplatesDir are reached
	Groups          []string             `json:"groups,omitempty"`
	Capacity        int                  `json:"capacity,omitempty"` // 0: the controller's default
	DiskReserve     bytesize.DiskReserve `json:"reserve"`
	TLS             TLSFiles             `json:"tls,omitzero"`
	APIKey          *APIKey              `json:"key,omitempty"` // the API key that it joined with; nil: none

	VLANs            []string `json:"vlans,omitempty"`       // see hv.ParseVLANs
	VLANUplinkDevice string   `json:"vlan_uplink,omitempty"` // network device for those without a bridge
}

// Cloud is what a node knows of its cloud.
type Cloud struct {
	// Key is the public key of the cloud, by which the node recognizes it at another address; "" until a controller
	// has sent it.
	Key            string   `json:"key,omitempty"`
	ControllerURLs []string `json:"controllers,omitempty"` // as given at the join, if there are several
	AnnouncedURLs  []string `json:"announced,omitempty"`   // by the cloud
	AnnouncedCA    string   `json:"announced_ca,omitempty"`
}

// APIKey names an API key and the file of its private key.
type APIKey struct {
	KeyID   string `json:"id"`
	KeyFile string `json:"file"`
}

// TLSFiles names the files for connections to the controller.
type TLSFiles struct {
	SkipVerify bool   `json:"insecure,omitempty"`
	CertFile   string `json:"cert,omitempty"`
	KeyFile    string `json:"key,omitempty"`
	CAFile     string `json:"ca,omitempty"`
}

// With returns the files with others in place of those that are given. A given CA ends SkipVerify.
func (t TLSFiles) With(given TLSFiles) TLSFiles {
	if given.CAFile != "" || given.SkipVerify {
		t.CAFile, t.SkipVerify = given.CAFile, given.SkipVerify
	}
	if given.CertFile != "" || given.KeyFile != "" {
		t.CertFile, t.KeyFile = given.CertFile, given.KeyFile
	}
	return t
}

// Absolute returns the files with absolute names, which are valid in other directories, too.
func (t TLSFiles) Absolute() (TLSFiles, error) {
	for _, name := range []*string{&t.CertFile, &t.KeyFile, &t.CAFile} {
		if *name == "" {
			continue
		}
		var err error
		if *name, err = filepath.Abs(*name); err != nil {
			return t, fmt.Errorf("certificates: %w", err)
		}
	}
	return t, nil
}

// Identity reads the node's identity. For a node that has not joined it returns a CodeNotFound
// error with advice.
func (h Dir) Identity() (Identity, error) {
	raw, err := os.ReadFile(h.identityFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, farm.Errorf(farm.CodeNotFound,
			"This node has not joined a cloud (no node.json in %s); run: buildnode join <controller URL> --token-file "+
				"<file>", h.path)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read identity: %w", err)
	}
	var id Identity
	if err := json.Unmarshal(raw, &id); err != nil {
		return Identity{}, fmt.Errorf("read identity %s: %w", h.identityFile(), err)
	}
	if err := formats.Check(id.Format); err != nil {
		return Identity{}, err
	}
	return id, nil
}

// SetIdentity stores the node's identity, durably.
func (h Dir) SetIdentity(id Identity) error {
	if err := h.Create(); err != nil {
		return err
	}
	id.Format = Format
	raw, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return WriteFile(h.identityFile(), append(raw, '\n'))
}

// ClearIdentity removes the node's identity; a missing one is not an error.
func (h Dir) ClearIdentity() error {
	for _, file := range []string{h.KeyFile(), h.lastErrorFile(), h.ConnectionsFile(), h.identityFile()} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove identity: %w", err)
		}
	}
	return nil
}

func (h Dir) lastErrorFile() string { return filepath.Join(h.path, "trouble") }

// SetLastError stores why the agent has ended, for the status command; "" while it runs.
func (h Dir) SetLastError(text string) error {
	if text != "" {
		return WriteFile(h.lastErrorFile(), []byte(text+"\n"))
	}
	if err := os.Remove(h.lastErrorFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the last error: %w", err)
	}
	return nil
}

// LastError returns why the agent has ended; "" when it runs or ended regularly.
func (h Dir) LastError() string {
	raw, err := os.ReadFile(h.lastErrorFile())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// WriteFile replaces a file as a whole and durably, for its owner only.
func WriteFile(name string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", filepath.Base(name), err)
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
