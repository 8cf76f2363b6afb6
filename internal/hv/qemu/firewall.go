package qemu

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// nftTimeout limits the time for loading the rules.
const nftTimeout = 20 * time.Second

// firewall keeps guests off the services of this host and off the host's credentials. A guest's
// connections are made by QEMU, so they are recognized by the user that QEMU runs as. The kernel
// owns the rules: they outlive the agent, as QEMU does. Loading them again changes nothing.
type firewall struct {
	uid     uint32
	program string // of nftables

	mu sync.Mutex // held while rules are loaded
}

// newFirewall returns the host's firewall, or why it is not available.
func newFirewall(d *Driver) (*firewall, error) {
	switch {
	case runtime.GOOS != "linux":
		return nil, errors.New("firewall rules for guests require Linux; run untrusted guests on a Linux node")
	case d.qemuCredential == nil:
		return nil,
			errors.New(
				"QEMU runs as the same user as the agent, so firewall rules cannot tell its connections apart; run " +
					"the agent as root")
	}
	names := []string{"nft", "/usr/sbin/nft", "/sbin/nft"}
	if d.opts.nftProgram != "" {
		names = []string{d.opts.nftProgram}
	}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return &firewall{uid: d.qemuCredential.Uid, program: program}, nil
		}
	}
	return nil, errors.New("the program nft is not installed; install the package nftables")
}

// loadRules replaces the rules in one transaction: the host is never without rules.
func (f *firewall) loadRules(ctx context.Context) error {
	conf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.program, "-f", "-")
	cmd.Stdin = strings.NewReader(nftRules(f.uid, resolvers(conf)))
	cmd.Env, cmd.Dir, cmd.WaitDelay = toolEnv(), "/", time.Second
	var text limitedBuffer
	cmd.Stdout, cmd.Stderr = &text, &text
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return fmt.Errorf("nft: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("nft: %w: %s; the kernel needs nf_tables with conntrack and reject", err,
			sanitizedTail(text.Bytes()))
	}
	return nil
}

// nftRules returns the input of nft. Each user of QEMU has two separate chains in the table of all
// drivers: one selects its packets, and one filters them. The guest can answer a connection that a
// client made to a port rule; a connection that a guest makes is refused at the host, except for
// DNS queries.
func nftRules(uid uint32, resolvers []netip.Addr) string {
	pick, filter := fmt.Sprintf("uid-%d", uid), fmt.Sprintf("guests-%d", uid)
	lines := []string{
		"add table inet buildyard",
		"add chain inet buildyard refuse",
		"flush chain inet buildyard refuse",
		// A guest sees a reset immediately, and the other refusal only after a while.
		"add rule inet buildyard refuse meta l4proto tcp reject with tcp reset",
		"add rule inet buildyard refuse reject",
		"add chain inet buildyard " + filter,
		"flush chain inet buildyard " + filter,
		"add chain inet buildyard " + pick + " { type filter hook output priority filter; policy accept; }",
		"flush chain inet buildyard " + pick,
		// Never the other way round: the last packets of a closed socket have no user, so "is not
		// this user" does not match anyone's.
		fmt.Sprintf("add rule inet buildyard %s meta skuid %d goto %s", pick, uid, filter),
	}
	add := func(rule string) { lines = append(lines, "add rule inet buildyard "+filter+" "+rule) }
	for _, r := range resolvers {
		add(fmt.Sprintf("ip daddr %s meta l4proto { tcp, udp } th dport 53 accept", r))
	}
	// Link-local: a cloud's credentials are served there. Multicast: the host receives its own.
	add("ip daddr { 169.254.0.0/16, 224.0.0.0/4 } goto refuse")
	// All addresses of the host itself are reached through lo. Untracked packets have no direction
	// and are refused, too.
	add(`oif "lo" ct direction reply accept`)
	add(`oif "lo" goto refuse`)
	return strings.Join(lines, "\n") + "\n"
}

// resolvers returns the IPv4 name servers in resolv.conf: QEMU queries them itself when a guest
// resolves a name, and one of them may be on this host.
func resolvers(conf []byte) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(string(conf)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(f[1]); err == nil && ip.Is4() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}
