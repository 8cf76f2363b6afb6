package buildyard

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/internal/config"
)

// printNextSteps prints the files and the next steps. values are the settings of the file; the environment overrides
// them, as it does in the service.
func (o *initOptions) printNextSteps(values map[string]string) error {
	if _, err := fmt.Fprintf(o.Out, "%s\n\n", strings.Join(o.messages, "\n")); err != nil {
		return err
	}
	v, err := config.Load(config.ControllerTable, config.Sources{Env: os.LookupEnv, FileDefaults: values})
	if err != nil {
		return err
	}
	up := "buildyard up"
	if v.String(config.DataDir) != o.dataDir {
		up += " --data-dir " + shellWord(o.dataDir)
	}
	url := localURL(v)
	steps := []string{up, "export " + config.Controller + "=" + shellWord(url)}
	if v.Bool(config.EnableAuth) {
		token := filepath.Join(o.dataDir, rootTokenFile)
		steps = append(steps, "export "+config.RootToken+"_FILE="+shellWord(token))
	}
	certificates := filepath.Join(o.dataDir, tlsDir)
	if v.Bool(config.UseHTTPS) && filepath.Dir(v.String(config.ServerCert)) == certificates {
		steps = append(steps, "export "+config.TrustedCA+"="+shellWord(filepath.Join(certificates, authorityFile)))
	}
	steps = append(steps, "buildyard status")
	login := "In a browser, open " + url + "."
	if v.Bool(config.EnableAuth) {
		steps = append(steps, "buildyard key create ci --ttl 90d --out ci.pem      # one key per program")
		login = "In a browser, log in at " + url + " with the root token."
	}
	_, err = fmt.Fprintf(o.Out, "%s Next:\n\n  %s\n\n%s\n", accessState(v), strings.Join(steps, "\n  "), login)
	return err
}

// localURL returns the address of the controller for programs of this machine.
func localURL(v *config.Values) string {
	scheme := "http"
	if v.Bool(config.UseHTTPS) {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(v.String(config.ListenAddr)) // checked when it was loaded
	if isWildcard(host) {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// accessState describes in a sentence whether callers authenticate, and which machines reach the ports.
func accessState(v *config.Values) string {
	if !v.Bool(config.EnableAuth) {
		return "Authentication is off: " + config.EnableAuth + " is not true in the environment or in " +
			initSettingsFile + "."
	}
	controller, _, _ := net.SplitHostPort(v.String(config.ListenAddr))
	registry, _, _ := net.SplitHostPort(v.String(config.RegistryListenAddress))
	switch {
	case isWildcard(controller) && isWildcard(registry):
		return "Authentication is on, and the ports are open to other machines."
	case isLoopback(controller) && isLoopback(registry):
		return "Authentication is on, and the ports are open to programs of this machine only."
	}
	return "Authentication is on. The controller listens on " + interfaceText(controller) + ", the registry on " +
		interfaceText(registry) + "."
}

// interfaceText describes the host of a listen address.
func interfaceText(host string) string {
	switch {
	case isWildcard(host):
		return "all addresses"
	case isLoopback(host):
		return host + " only (this machine)"
	}
	return host + " only"
}

func isWildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || (err == nil && ip.IsUnspecified())
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

// plainShellWord is a text that a shell does not change.
var plainShellWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord quotes a text as one word of a POSIX shell, where it needs quotes.
func shellWord(text string) string {
	if plainShellWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
