package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"howett.net/plist"
)

// config is config.json as tart 2.32 writes it.
type config struct {
	Version       int     `json:"version"`
	OS            string  `json:"os"`
	Arch          string  `json:"arch"`
	ECID          string  `json:"ecid,omitempty"`          // base64 of a binary plist {ECID: integer}
	HardwareModel string  `json:"hardwareModel,omitempty"` // base64 of a binary plist
	CPUCountMin   int     `json:"cpuCountMin"`
	CPUCount      int     `json:"cpuCount"`
	MemorySizeMin int64   `json:"memorySizeMin"` // bytes
	MemorySize    int64   `json:"memorySize"`    // bytes
	MACAddress    string  `json:"macAddress"`
	Display       display `json:"display"`
	DisplayRefit  *bool   `json:"displayRefit,omitempty"`
	DiskFormat    string  `json:"diskFormat"`
}

type display struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Unit   string `json:"unit,omitempty"` // pt or px
}

func (d display) String() string { return fmt.Sprintf("%dx%d%s", d.Width, d.Height, d.Unit) }

// decodeConfig reads config.json with the defaults of tart, and refuses what tart cannot read.
func decodeConfig(b []byte) (config, error) {
	c := config{OS: "darwin", Arch: "arm64", Display: display{Width: 1024, Height: 768}, DiskFormat: "raw"}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("the data is not in the correct format: %w", err)
	}
	if c.OS == "darwin" && (c.ECID == "" || c.HardwareModel == "") || c.MACAddress == "" || c.MemorySize <= 0 {
		return c, errors.New("the data could not be read because it is missing")
	}
	return c, nil
}

// config reads the configuration of a VM that this process does not run.
func (v *vm) config() (config, error) {
	b, err := os.ReadFile(v.path(configFile))
	if err != nil {
		return config{}, err
	}
	return decodeConfig(b)
}

func (v *vm) writeConfig(c config) error {
	return os.WriteFile(v.path(configFile), encodeConfig(c), 0o600)
}

func encodeConfig(c config) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of texts and numbers
	}
	return b
}

// readLocked and rewriteLocked use the descriptor that has the lock: closing another one would drop the lock.
func readLocked(lock *os.File) (config, error) {
	b, err := io.ReadAll(io.NewSectionReader(lock, 0, 1<<20))
	if err != nil {
		return config{}, err
	}
	return decodeConfig(b)
}

func rewriteLocked(lock *os.File, c config) error {
	b := encodeConfig(c)
	if _, err := lock.WriteAt(b, 0); err != nil {
		return err
	}
	return lock.Truncate(int64(len(b)))
}

// randomMAC returns a locally administered address as tart makes it.
func randomMAC() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	b[0] = b[0]&0xfc | 2
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}

func encodePlist(v any) string {
	b, err := plist.Marshal(v, plist.BinaryFormat)
	if err != nil {
		panic(err) // a map of texts and numbers
	}
	return base64.StdEncoding.EncodeToString(b)
}

// randomECID returns a new identity of a machine.
func randomECID() string {
	var b [7]byte
	_, _ = rand.Read(b[:])
	id := uint64(time.Now().UnixNano())
	for _, x := range b {
		id = id<<8 ^ uint64(x)
	}
	return encodePlist(map[string]uint64{"ECID": id})
}

func newConfig(os string) config {
	const minMemory = 4 << 30
	c := config{
		Version: 1, OS: os, Arch: "arm64", CPUCountMin: 2, CPUCount: 4, MemorySizeMin: minMemory,
		MemorySize: 2 * minMemory, MACAddress: randomMAC(), Display: display{Width: 1024, Height: 768},
		DiskFormat: "raw",
	}
	if os == "darwin" {
		c.ECID = randomECID()
		c.HardwareModel = encodePlist(map[string]any{
			"DataRepresentationVersion": 2, "PlatformVersion": 2, "MinimumSupportedOS": []int{13, 0, 0},
		})
	}
	return c
}
