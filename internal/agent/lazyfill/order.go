package lazyfill

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/transfer"
)

// The files in the directory of a process.
const (
	orderFile  = "order.json"  // an Order, by the agent
	servedFile = "served.json" // the VMs, by the process
	lockFile   = "lock"        // locked by the process
	logFile    = "log"         // of the process
)

const maxFileBytes = 16 << 20 // of a file in that directory

// Order is what a process pulls.
type Order struct {
	Registry    string           `json:"registry"` // address
	Mirror      string           `json:"mirror,omitempty"`
	TLS         datadir.TLSFiles `json:"tls,omitzero"`
	AnnouncedCA string           `json:"announced_ca,omitempty"` // PEM
	TemplateID  string           `json:"template"`
	ContentID   string           `json:"content"`
	Dir         string           `json:"dir"` // that receives the files
	SocketDir   string           `json:"socket_dir"`
	SocketGroup int              `json:"socket_group"` // that VMs run in; -1: that of this process
	MinBytes    int64            `json:"min_bytes"`    // see transfer.LazyOptions
	// BootTime is how long the first VM may take to boot until what it does not read is pulled too; 0: it is not waited
	// for.
	BootTime time.Duration `json:"boot_time,omitempty"`
	NodeID   string        `json:"node_id,omitempty"`
	PeerFile string        `json:"peer_file,omitempty"` // see peers.LoadIdentity; "": no other node is used
	// Finished has the files of a version of which all is here; the process fills it in. Its disks are served from the
	// files, and nothing is pulled any more.
	Finished map[string]File `json:"finished,omitempty"`
}

func (o Order) validate() error {
	switch {
	case o.Registry == "" || o.TemplateID == "" || o.ContentID == "":
		return errors.New("the order names no version")
	case !filepath.IsAbs(o.Dir) || !filepath.IsAbs(o.SocketDir):
		return errors.New("the directories of the order are not absolute")
	}
	return nil
}

func (o Order) ref() transfer.VersionRef {
	return transfer.VersionRef{ID: o.TemplateID, ContentID: o.ContentID}
}

// VM is a VM that reads the disks of a version.
type VM struct {
	// ProcessFile names the file that has the VM's process as {"pid": n} once it runs. Other processes are refused at
	// its sockets.
	ProcessFile string `json:"process_file"`
	// Sockets has the path of a socket by the name of a disk; the process fills it in.
	Sockets map[string]string `json:"sockets,omitempty"`
}

// vmPattern is the form of a VM's ID.
var vmPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return datadir.WriteFile(filepath.Join(dir, name), b)
}

func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}
