package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// unknown returns the finding of a check whose program could not be run.
func unknown(err error) finding { return finding{outcome: Unknown, detail: err.Error()} }

// findAutoLogin checks that the user of the agent is logged in at each start: a LaunchAgent runs in that session.
func findAutoLogin(ctx context.Context, o Options) finding {
	got, err := run(ctx, "defaults", "read", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser")
	if err != nil {
		return unknown(err)
	}
	return evaluateAutoLogin(got, o.User)
}

func evaluateAutoLogin(got commandResult, user string) finding {
	name := strings.TrimSpace(got.output)
	switch {
	case got.code == 0 && name == user && user != "":
		return finding{outcome: OK, detail: "user " + user + " is logged in at each start"}
	case got.code == 0 && name != "":
		return finding{
			outcome: Problem,
			detail:  fmt.Sprintf("user %.64q is logged in at each start, but the agent runs as %s", name, user),
		}
	case strings.Contains(got.output, "does not exist"):
		return finding{outcome: Problem, detail: "no user is logged in after a restart, so the agent does not start"}
	}
	return finding{outcome: Unknown, detail: "unexpected output of defaults: " + firstLine(got.output)}
}

// findKeychain checks the login keychain: since macOS 15, guests do not start without it.
func findKeychain(ctx context.Context, _ Options) finding {
	got, err := run(ctx, "security", "show-keychain-info", "login.keychain")
	if errors.Is(err, errTimeout) { // a dialog on the screen waits for the password
		return finding{outcome: Problem, detail: "the login keychain is locked: macOS asks for its password"}
	}
	if err != nil {
		return unknown(err)
	}
	return evaluateKeychain(got)
}

// keychainTimeout is the part of the output that names the time after which the keychain is locked.
var keychainTimeout = regexp.MustCompile(`timeout=(\d{1,9})s`)

func evaluateKeychain(got commandResult) finding {
	switch {
	case strings.Contains(got.output, "could not be found"):
		return finding{
			outcome: Problem, detail: "there is no login keychain: macOS guests do not start",
			remedy: "log in on the Mac's screen once, or run: security create-keychain -p '' login.keychain; " +
				"security unlock-keychain -p '' login.keychain; security login-keychain -s login.keychain",
		}
	case strings.Contains(got.output, "interaction is not allowed"):
		return finding{outcome: Problem, detail: "the login keychain is locked: macOS guests do not start"}
	case got.code != 0 || !strings.Contains(got.output, "Keychain "):
		return finding{outcome: Unknown, detail: "unexpected output of security: " + firstLine(got.output)}
	}
	const keepOpen = "security set-keychain-settings login.keychain"
	if limit := keychainTimeout.FindStringSubmatch(got.output); limit != nil {
		return finding{
			outcome: Problem, remedy: keepOpen,
			detail: "the login keychain is locked after " + limit[1] + " s without use",
		}
	}
	if strings.Contains(got.output, "lock-on-sleep") {
		return finding{outcome: Problem, detail: "the login keychain is locked when the Mac sleeps", remedy: keepOpen}
	}
	return finding{outcome: OK, detail: "it exists and is unlocked"}
}

// findSleep checks that the Mac does not go to sleep when it is idle: a node that sleeps is Offline.
func findSleep(ctx context.Context, _ Options) finding {
	got, err := run(ctx, "pmset", "-g")
	if err != nil {
		return unknown(err)
	}
	return evaluateSleep(got)
}

// sleepMinutes is the line of pmset with the minutes until sleep.
var sleepMinutes = regexp.MustCompile(`(?m)^\s*sleep\s+(\d{1,9})\b`)

func evaluateSleep(got commandResult) finding {
	minutes := sleepMinutes.FindStringSubmatch(got.output)
	switch {
	case got.code != 0 || minutes == nil:
		return finding{outcome: Unknown, detail: "unexpected output of pmset: " + firstLine(got.output)}
	case strings.Trim(minutes[1], "0") != "":
		return finding{outcome: Problem, detail: "the Mac sleeps after " + minutes[1] + " minutes without use"}
	}
	return finding{outcome: OK, detail: "the Mac does not sleep"}
}

// maxLeaseSeconds is the longest DHCP lease with which a busy node does not run out of addresses.
const maxLeaseSeconds = 3600

// findLeaseTime checks how long the Mac's DHCP server keeps the address of a VM that is gone: there are about 253.
func findLeaseTime(ctx context.Context, _ Options) finding {
	const file = "/Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist"
	got, err := run(ctx, "defaults", "read", file, "bootpd")
	if err != nil {
		return unknown(err)
	}
	return evaluateLeaseTime(got)
}

// leaseSeconds is the line of the setting in a property list as defaults prints it.
var leaseSeconds = regexp.MustCompile(`(?m)^\s*"?DHCPLeaseTimeSecs"?\s*=\s*"?(\d{1,9})"?;`)

func evaluateLeaseTime(got commandResult) finding {
	const effect = "; about 250 VMs a day use up all addresses"
	seconds := leaseSeconds.FindStringSubmatch(got.output)
	switch {
	case seconds != nil && got.code == 0:
		n, err := strconv.Atoi(seconds[1])
		if err != nil || n > maxLeaseSeconds || n == 0 {
			return finding{outcome: Problem, detail: "addresses of VMs are kept for " + seconds[1] + " s" + effect}
		}
		return finding{outcome: OK, detail: "addresses of VMs are kept for " + seconds[1] + " s"}
	case got.code == 0 || strings.Contains(got.output, "does not exist"):
		return finding{outcome: Problem, detail: "addresses of VMs are kept for a day, the default" + effect}
	}
	return finding{outcome: Unknown, detail: "unexpected output of defaults: " + firstLine(got.output)}
}

// findSoftnet checks whether softnet, if it is installed, may become root, as it must.
func findSoftnet(context.Context, Options) finding {
	path, err := exec.LookPath("softnet")
	if err != nil {
		return finding{outcome: OK, detail: "not installed; only network mode host of tart needs it"}
	}
	if target, err := filepath.EvalSymlinks(path); err == nil { // Homebrew installs a link
		path = target
	}
	info, err := os.Stat(path)
	if err != nil {
		return unknown(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return finding{outcome: Unknown, detail: "the owner of " + path + " is unknown"}
	}
	return evaluateSoftnet(path, owner.Uid, info.Mode())
}

func evaluateSoftnet(path string, owner uint32, mode os.FileMode) finding {
	if owner == 0 && mode&os.ModeSetuid != 0 {
		return finding{outcome: OK, detail: path + " runs as root"}
	}
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	return finding{
		outcome: Problem, detail: path + " does not run as root: network mode host fails",
		remedy: "sudo chown root " + quoted + " && sudo chmod u+s " + quoted,
	}
}

// firstLocalNetworkRelease is the first macOS that asks before programs use the local network.
const firstLocalNetworkRelease = 15

// findLocalNetwork checks the exception for programs that use the local network, to which the VMs belong.
func findLocalNetwork(ctx context.Context, o Options) finding {
	release, err := run(ctx, "sw_vers", "-productVersion")
	if err != nil {
		return unknown(err)
	}
	got, err := run(ctx, "defaults", "read", "com.apple.network.local-network", "AllowedEthernetLocalNetworkAddresses")
	if err != nil {
		return unknown(err)
	}
	return evaluateLocalNetwork(release, got, o.User)
}

// evaluateLocalNetwork evaluates the version of macOS and the setting. The setting is one of root, whose preferences
// other users cannot read.
func evaluateLocalNetwork(release, setting commandResult, user string) finding {
	major, _, _ := strings.Cut(strings.TrimSpace(release.output), ".")
	n, err := strconv.Atoi(major)
	switch {
	case release.code != 0 || err != nil:
		return finding{outcome: Unknown, detail: "unexpected output of sw_vers: " + firstLine(release.output)}
	case n < firstLocalNetworkRelease:
		return finding{outcome: OK, detail: "macOS " + major + " does not restrict it"}
	case setting.code == 0 && strings.Contains(setting.output, "/"):
		return finding{outcome: OK, detail: "programs may use private addresses"}
	case user == "root":
		return finding{outcome: Problem, detail: "macOS may refuse connections to VMs: no exception is set"}
	}
	return finding{outcome: Unknown, detail: "the exception is a setting of root; VMs that cannot be reached, with " +
		"the error \"no route to host\", need it"}
}

// firstLine returns the start of a text for a message.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return fmt.Sprintf("%.120q", line)
}
