package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// withoutZeros writes a MAC as the DHCP server of macOS does: ee:07:.. is ee:7:..
func withoutZeros(mac string) string {
	parts := strings.Split(strings.ToLower(mac), ":")
	for i, p := range parts {
		if parts[i] = strings.TrimLeft(p, "0"); parts[i] == "" {
			parts[i] = "0"
		}
	}
	return strings.Join(parts, ":")
}

func (h *home) leasesFile() string {
	return h.knobs.Text("", knobLeases, filepath.Join(filepath.Dir(h.dir), "dhcpd_leases"))
}

func leaseBlock(mac, address string, end time.Time) string {
	hw := withoutZeros(mac)
	return fmt.Sprintf("{\n\tname=Admins-Virtual-Machine\n\tip_address=%s\n\thw_address=1,%s\n\tidentifier=1,%s\n"+
		"\tlease=%#x\n}\n", address, hw, hw, end.Unix())
}

// addLease replaces the leases of a MAC: one that counts, and for readers that are not careful an older one and one
// that has expired, with other addresses.
func (h *home) addLease(mac string) error {
	f, err := os.OpenFile(h.leasesFile(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the leases: %w", err)
	}
	old, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, block := range strings.SplitAfter(string(old), "}\n") {
		if !strings.Contains(block, "hw_address=1,"+withoutZeros(mac)+"\n") {
			out.WriteString(block)
		}
	}
	now := time.Now()
	out.WriteString(leaseBlock(mac, "127.64.255.253", now.Add(-time.Hour)))
	out.WriteString(leaseBlock(mac, h.knobs.Address(mac), now.Add(24*time.Hour)))
	out.WriteString(leaseBlock(mac, "127.64.255.254", now.Add(time.Hour)))
	if _, err := f.WriteAt(out.Bytes(), 0); err != nil {
		return err
	}
	return f.Truncate(int64(out.Len()))
}

// leasedAddress returns the address of a MAC by its unexpired lease that ends last; "" = none.
func (h *home) leasedAddress(mac string) (address string) {
	text, _ := os.ReadFile(h.leasesFile())
	latest := time.Now().Unix()
	for block := range strings.SplitSeq(string(text), "}") {
		values := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values[key] = value
		}
		end, err := strconv.ParseInt(values["lease"], 0, 64)
		if err == nil && end > latest && values["hw_address"] == "1,"+withoutZeros(mac) {
			latest, address = end, values["ip_address"]
		}
	}
	return address
}

// showAddress tries once a second, so that a failure takes at least one.
func showAddress(ctx context.Context, c *call) error {
	v, err := c.existing(c.name())
	if err != nil {
		return err
	}
	wait, err := c.seconds(0, "wait")
	if err != nil {
		return err
	}
	resolve, found := map[string]func(*vm) (string, error){
		"dhcp": addressByLease, "arp": addressByLease, "agent": addressByAgent,
	}[c.value("dhcp", "resolver")]
	if !found {
		return usage("ip", "The value '%s' is invalid for '--resolver <resolver>'", c.value("", "resolver"))
	}
	for end := time.Now().Add(wait); ; {
		address, err := resolve(v)
		if err == nil && address != "" {
			fmt.Println(address)
			return nil
		}
		fakeguest.Pause(ctx, time.Second)
		if time.Now().Before(end) {
			continue
		}
		text := "no IP address found"
		if pid, _ := v.owner(); pid == 0 {
			text += ", is your VM running?"
		}
		return fail(1, "%s", text)
	}
}

func addressByLease(v *vm) (string, error) {
	config, err := v.config()
	if err != nil {
		return "", err
	}
	return v.leasedAddress(config.MACAddress), nil
}

// addressByAgent asks the guest itself, whatever network it is in.
func addressByAgent(v *vm) (string, error) {
	var out bytes.Buffer
	code, err := fakeguest.Call(v.dir, fakeguest.Request{Kind: fakeguest.Address}, nil, &out, io.Discard)
	if err == nil && code != 0 {
		err = errors.New("the guest has no address")
	}
	return strings.TrimSpace(out.String()), err
}
