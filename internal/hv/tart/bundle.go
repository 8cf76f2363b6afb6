package tart

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/hv"
)

// Files of a VM's directory that tart defines.
const (
	configFile = "config.json" // tart holds the fcntl lock on it while the VM runs
	rootFile   = "disk.img"
	auxFile    = "nvram.bin" // auxiliary storage

	maxConfigBytes = 1 << 20 // of config.json
)

// BundleConfig is config.json in a VM's directory, as tart 2.28 and later writes it. Memory is in bytes.
type BundleConfig struct {
	Version        int      `json:"version"`
	OS             string   `json:"os"`            // "darwin", "linux"; "" = "darwin"
	Arch           string   `json:"arch"`          // "arm64"; "" = "arm64"
	MachineID      []byte   `json:"ecid"`          // property list
	HardwareModel  []byte   `json:"hardwareModel"` // property list
	MinCPUs        int      `json:"cpuCountMin"`
	CPUs           int      `json:"cpuCount"`
	MinMemoryBytes int64    `json:"memorySizeMin"`
	MemoryBytes    int64    `json:"memorySize"`
	MAC            string   `json:"macAddress"`
	Display        *Display `json:"display,omitempty"`
	DiskFormat     string   `json:"diskFormat,omitempty"` // "raw", "asif"; "" = "raw"
}

// Display is the size of a VM's screen.
type Display struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Unit   string `json:"unit,omitempty"` // "pt", "px"
}

// newBundleConfig returns the configuration of a VM; the spec has its defaults.
func newBundleConfig(s hv.Spec) BundleConfig {
	return BundleConfig{
		Version: 1, OS: "darwin", Arch: "arm64",
		MachineID: s.Apple.MachineID, HardwareModel: s.Apple.HardwareModel,
		MinCPUs: max(1, s.Apple.MinCPUs), CPUs: s.CPUs,
		MinMemoryBytes: int64(s.Apple.MinMemoryMiB) << 20, MemoryBytes: int64(s.MemoryMB) << 20,
		MAC: s.MAC, Display: &Display{Width: hv.AppleDisplayWidth, Height: hv.AppleDisplayHeight},
		DiskFormat: "raw",
	}
}

// ReadBundleConfig reads and checks the configuration in a VM's directory.
func ReadBundleConfig(dir string) (BundleConfig, error) {
	path := filepath.Join(dir, configFile)
	f, err := os.Open(path)
	if err != nil {
		return BundleConfig{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return BundleConfig{}, fmt.Errorf("read %s: %w", path, err)
	}
	c, err := parseBundleConfig(text)
	if err != nil {
		return BundleConfig{}, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

func parseBundleConfig(text []byte) (BundleConfig, error) {
	var c BundleConfig
	if len(text) > maxConfigBytes {
		return c, fmt.Errorf("the file has more than %d bytes: it is not a configuration of tart", maxConfigBytes)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	switch {
	case c.Version != 1:
		return c, fmt.Errorf("version %d of the format is not supported: want 1", c.Version)
	case c.CPUs < 1 || c.CPUs > hv.MaxCPUs:
		return c, fmt.Errorf("%d virtual CPUs: want 1-%d; set them with tart set --cpu", c.CPUs, hv.MaxCPUs)
	case c.MemoryBytes < 1<<20 || c.MemoryBytes>>20 > hv.MaxMemoryMB:
		return c, fmt.Errorf("%d bytes of memory: want 1-%d MiB; set it with tart set --memory", c.MemoryBytes,
			hv.MaxMemoryMB)
	case c.MinCPUs < 0 || c.MinCPUs > hv.MaxCPUs || c.MinMemoryBytes < 0 || c.MinMemoryBytes>>20 > hv.MaxMemoryMB:
		return c, errors.New("the least number of CPUs or amount of memory is out of range")
	case len(c.MachineID) > hv.MaxMachineIDBytes || len(c.HardwareModel) > hv.MaxHardwareModelBytes:
		return c, errors.New("the machine identifier or the hardware model is too long")
	}
	return c, nil
}

// updateBundleConfig sets what a start may change in the configuration of a VM that does not run. The
// machine stays the one that its guest knows.
func updateBundleConfig(dir string, s hv.Spec) error {
	c, err := ReadBundleConfig(dir)
	if err != nil {
		return err
	}
	if c.CPUs == s.CPUs && c.MemoryBytes == int64(s.MemoryMB)<<20 && c.MAC == s.MAC {
		return nil
	}
	c.CPUs, c.MemoryBytes, c.MAC = s.CPUs, int64(s.MemoryMB)<<20, s.MAC
	return writeBundleConfig(dir, c)
}

// writeBundleConfig writes the configuration into a VM's directory.
func writeBundleConfig(dir string, c BundleConfig) error {
	return writeJSON(filepath.Join(dir, configFile), c)
}
