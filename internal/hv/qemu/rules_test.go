package qemu

import (
	"log/slog"
	"os"
	"os/user"
	"strings"
	"testing"
)

// Changes here change what guests can reach on hosts: they are decisions (docs/decisions/17-guest-isolation.md).
func TestRules(t *testing.T) {
	conf := "# nameserver 1.1.1.1\nsearch lan\nnameserver 127.0.0.53\nnameserver ::1\nnameserver " +
		"fe80::1%lo\nnameserver\nnameserver 192.0.2.9 # x\nnameserver 127.0.0.53\nnameserver 1; flush ruleset\n"
	got := nftRules(65525, resolvers([]byte(conf)))
	want := `add table inet buildyard
add chain inet buildyard refuse
flush chain inet buildyard refuse
add rule inet buildyard refuse meta l4proto tcp reject with tcp reset
add rule inet buildyard refuse reject
add chain inet buildyard guests-65525
flush chain inet buildyard guests-65525
add chain inet buildyard uid-65525 { type filter hook output priority filter; policy accept; }
flush chain inet buildyard uid-65525
add rule inet buildyard uid-65525 meta skuid 65525 goto guests-65525
add rule inet buildyard guests-65525 ip daddr 127.0.0.53 meta l4proto { tcp, udp } th dport 53 accept
add rule inet buildyard guests-65525 ip daddr 192.0.2.9 meta l4proto { tcp, udp } th dport 53 accept
add rule inet buildyard guests-65525 ip daddr { 169.254.0.0/16, 224.0.0.0/4 } goto refuse
add rule inet buildyard guests-65525 oif "lo" ct direction reply accept
add rule inet buildyard guests-65525 oif "lo" goto refuse
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// QEMU runs as a user that nothing else runs as: the rules would affect that, too.
func TestCredential(t *testing.T) {
	if os.Geteuid() != 0 {
		if c, err := credential(""); c != nil || err != nil {
			t.Errorf("without root: %+v, %v", c, err)
		}
		if _, err := credential("nobody"); err == nil {
			t.Error("another user without root")
		}
		return
	}
	c, err := credential("")
	if err != nil || c.Uid == 0 || c.Gid == 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := user.Lookup("buildyard"); err != nil && (c.Uid != qemuUserID || c.Gid != qemuUserID) {
		t.Errorf("without a user buildyard: %+v", c)
	}
	for _, name := range []string{"root", "no-such-user-here"} {
		if c, err := credential(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// Rules that can no longer be restored: each start logs a warning, or is refused.
func TestRulesAreLost(t *testing.T) {
	var log strings.Builder
	d := &Driver{log: slog.New(slog.NewTextHandler(&log, nil)), firewall: &firewall{uid: qemuUserID, program: "false"}}
	if err := d.ensureIsolation(t.Context()); err != nil ||
		!strings.Contains(log.String(), "loading the firewall rules") {
		t.Errorf("%v; logged %q", err, log.String())
	}
	d.opts.RequireIsolation = true
	if err := d.ensureIsolation(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "isolated from the services") {
		t.Errorf("asked for, and a start goes on: %v", err)
	}
	d.firewall.program = "true"
	if err := d.ensureIsolation(t.Context()); err != nil {
		t.Errorf("%v", err)
	}
}
