package tart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// TestReadBundleConfig reads testdata/config.json: the form that tart 2.32 writes, with an identifier and an
// address that were made up.
func TestReadBundleConfig(t *testing.T) {
	got, err := ReadBundleConfig("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(got.MachineID, []byte("bplist00")) || !bytes.HasPrefix(got.HardwareModel, []byte("bplist00")) {
		t.Errorf("machine identifier %.8q, hardware model %.8q: want property lists", got.MachineID, got.HardwareModel)
	}
	got.MachineID, got.HardwareModel = nil, nil
	want := BundleConfig{
		Version: 1, OS: "darwin", Arch: "arm64", MinCPUs: 2, CPUs: 2, MinMemoryBytes: 4 << 30, MemoryBytes: 4 << 30,
		MAC: "52:54:00:5f:97:c9", Display: &Display{Width: 1024, Height: 768}, DiskFormat: "raw",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestWriteBundleConfig: what the driver writes has the keys of the form that tart writes.
func TestWriteBundleConfig(t *testing.T) {
	text, err := os.ReadFile("testdata/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var theirs, ours map[string]any
	if err := json.Unmarshal(text, &theirs); err != nil {
		t.Fatal(err)
	}
	c, err := parseBundleConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := hv.Spec{
		CPUs: 2, MemoryMB: 4096, MAC: c.MAC,
		Apple: &hv.Apple{HardwareModel: c.HardwareModel, MachineID: c.MachineID, MinCPUs: 2, MinMemoryMiB: 4096},
	}
	if err := writeBundleConfig(dir, newBundleConfig(s)); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(filepath.Join(dir, configFile)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &ours); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("got %v, want %v", ours, theirs)
	}
}

func TestBadBundleConfig(t *testing.T) {
	const good = `{"version":1,"cpuCount":2,"memorySize":1073741824`
	for text, says := range map[string]string{
		`{`:                           "unexpected end",
		`{"version":2}`:               "version 2",
		`{"version":1}`:               "0 virtual CPUs",
		`{"version":1,"cpuCount":2}`:  "0 bytes of memory",
		good + `,"cpuCountMin":-1}`:   "out of range",
		good + `,"ecid":"*"}`:         "illegal base64",
		good + `,"memorySizeMin":-1}`: "out of range",
		good + `,"ecid":"` + strings.Repeat("AAAA", hv.MaxMachineIDBytes) + `"}`: "too long",
		strings.Repeat(" ", maxConfigBytes+1):                                    "more than",
	} {
		if _, err := parseBundleConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: %v, want %q", text, err, says)
		}
	}
}

func FuzzBundleConfig(f *testing.F) {
	text, err := os.ReadFile("testdata/config.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseBundleConfig(text)
		if err == nil && (c.CPUs < 1 || c.MemoryBytes <= 0 || len(c.MachineID) > hv.MaxMachineIDBytes) {
			t.Errorf("%+v", c)
		}
	})
}
