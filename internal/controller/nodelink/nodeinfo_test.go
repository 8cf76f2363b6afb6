package nodelink

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/store"
)

// TestDescriptionsFitTheStore: the longest description that nodeinput lets pass fits a record.
func TestDescriptionsFitTheStore(t *testing.T) {
	long := strings.Repeat("ä", 1<<12)
	in := &api.NodeInfo{
		Arch: "amd64", OS: long, AgentVersion: long, Driver: long, Hypervisor: long, Accelerator: long, Machine: long,
		CPUModel: long, HostCPU: long, License: long, Expires: long, OSVersion: long, Processor: long,
		Problem: long,
	}
	for range 2000 {
		in.Templates = append(in.Templates, api.NodeTemplate{ID: long, Name: long, Tag: long, ContentID: long})
		in.USB = append(in.USB, api.USBDevice{Name: long, Location: long})
		in.Abilities = append(in.Abilities, long)
		in.VLANs = append(in.VLANs, len(in.VLANs))
	}
	if err := nodeinput.Poll(&api.PollRequest{BootID: "b", Info: in}); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(infoOf("n", in))
	if err != nil || len(raw) > store.MaxBytes {
		t.Errorf("a description of %d bytes (%v)", len(raw), err)
	}
}
