package buildnode_test

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/service/servicetest"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// TestMain lets the scripts run this binary as the program, and as programs that behave like those of systemd.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"buildnode": func() {
			beVersion()
			cli.Main(buildnode.Main)
		},
		"systemctl":  servicetest.Systemctl,
		"journalctl": func() { _, _ = fmt.Println("journal of", os.Args[1:]) },
	})
}

// TestScripts runs the scripts in testdata. $REGISTRY is a registry for the script alone; scripts
// named tart-* have a program that imitates tart first in PATH; those
// named cloud-* also have $CONTROLLER and $TOKEN, and those named auth-* a cloud with
// authentication, with the root token in $ROOT and in the file root.token. For those named tls-* it
// serves https, with the certificates of the directory $CERTS. Those named anka-* and cloud-anka* have
// a program that imitates anka.
func TestScripts(t *testing.T) {
	certs := t.TempDir()
	issue(t, certs)
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			switch script := filepath.Base(env.WorkDir); {
			case strings.HasPrefix(script, "script-cloud-anka"):
				return errors.Join(cloud(env, nil), installAnka(env))
			case strings.HasPrefix(script, "script-cloud-"):
				return cloud(env, nil)
			case strings.HasPrefix(script, "script-anka-"):
				return errors.Join(storage(env), installAnka(env))
			case strings.HasPrefix(script, "script-auth-"):
				return guardedCloud(env, nil)
			case strings.HasPrefix(script, "script-tls-"):
				env.Setenv("CERTS", certs)
				return guardedCloud(env, map[string]string{
					"SVC_USE_HTTPS": "true", "SVC_SERVER_CERT": filepath.Join(certs, "server.pem"),
					"SVC_SERVER_KEY": filepath.Join(certs, "server-key.pem"),
					"SVC_CA_CERT":    filepath.Join(certs, "ca.pem"),
				})
			case strings.HasPrefix(script, "script-tart-"):
				return fakeTart(env)
			default:
				return storage(env)
			}
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"until": until, "random": random, "keyfile": keyFile, "apikey": apiKey, "api": call, "api-until": callUntil,
		},
	})
}

// issue creates an authority with a certificate of the services, and one of a user.
func issue(t *testing.T, dir string) {
	t.Helper()
	ca := certstest.New(t, "scripts")
	server, user := ca.Server(t, "127.0.0.1"), ca.Client(t, "builder", "builders")
	for name, text := range map[string][]byte{
		"ca.pem": ca.CertPEM(), "server.pem": server.CertPEM(), "server-key.pem": server.KeyPEM(t),
		"user.pem": user.CertPEM(), "user-key.pem": user.KeyPEM(t), "other-ca.pem": certstest.New(t, "other").CertPEM(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// fakeTart builds the imitation of tart and puts it first in PATH of a script; $SCRIPTS has the scripts of the project.
func fakeTart(env *testscript.Env) error {
	programs := filepath.Join(env.WorkDir, ".programs")
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(programs, "tart"), "../../../test/fakes/tart")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the imitation of tart: %w: %s", err, out)
	}
	project, err := filepath.Abs("../../..")
	if err != nil {
		return err
	}
	env.Setenv("SCRIPTS", filepath.Join(project, "scripts"))
	env.Setenv("TART_HOME", filepath.Join(env.WorkDir, "tart", "home"))
	env.Setenv("PATH", programs+string(filepath.ListSeparator)+env.Getenv("PATH"))
	return nil
}

// storage starts a registry for a script.
func storage(env *testscript.Env) error {
	core, err := registry.Open(context.Background(),
		registry.Options{Base: filepath.Join(env.WorkDir, ".registry"), Version: "test"})
	if err != nil {
		return err
	}
	server := httptest.NewServer(rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler)))
	env.Defer(func() {
		server.Close()
		_ = core.Close()
	})
	env.Setenv("REGISTRY", server.URL)
	return nil
}

// cloud starts a controller with its registry for a script.
func cloud(env *testscript.Env, more map[string]string) error {
	s, end, err := openCloud(env.WorkDir, more)
	if err != nil {
		return err
	}
	env.Defer(end)
	env.Setenv("CONTROLLER", s.URL())
	env.Setenv("REGISTRY", s.RegistryURL())
	env.Setenv("TOKEN", s.JoinToken())
	return nil
}

const scriptRoot = "the root token of scripts"

// guardedCloud starts a cloud with authentication for a script.
func guardedCloud(env *testscript.Env, more map[string]string) error {
	env.Setenv("ROOT", scriptRoot)
	if err := os.WriteFile(filepath.Join(env.WorkDir, "root.token"), []byte(scriptRoot+"\n"), 0o600); err != nil {
		return err
	}
	settings := map[string]string{
		"SVC_ENABLE_AUTH": "true", "SVC_ROOT_TOKEN": scriptRoot, "SVC_ENABLE_API_KEYS": "true",
	}
	maps.Copy(settings, more)
	return cloud(env, settings)
}

// openCloud runs a controller with its registry, which store their data in a directory, until end
// is called.
func openCloud(dir string, more map[string]string) (s *buildyard.ControllerService, end func(), err error) {
	settings := map[string]string{
		"SVC_LISTEN_ADDR": "127.0.0.1:0", "SVC_REGISTRY_LISTEN_ADDRESS": "127.0.0.1:0", "SVC_LOG_LEVEL": "error",
		"SVC_LOCAL_LISTEN_ADDR":  "127.0.0.1:0",
		"SVC_DATA_DIR":           filepath.Join(dir, ".controller"),
		"SVC_REGISTRY_BASE_PATH": filepath.Join(dir, ".registry"),
	}
	maps.Copy(settings, more)
	s = &buildyard.ControllerService{Stderr: io.Discard, WithRegistry: true}
	err = s.ParseFlags(config.Sources{Env: func(key string) (string, bool) {
		v, ok := settings[key]
		return v, ok
	}})
	if err != nil {
		return nil, nil, err
	}
	if err := s.Open(context.Background()); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		<-done
		_ = s.Close()
	}, nil
}

// until repeats a command until its output matches: until REGEXP COMMAND...
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until regexp command args...")
	}
	want := regexp.MustCompile(args[0])
	last := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if last = ts.ReadFile("stdout") + ts.ReadFile("stderr"); err == nil && want.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%v never said %s; last:\n%s", args[1:], args[0], last)
}

// call calls the controller of the script: api METHOD PATH [BODY], and prints the response on
// stdout. The first node ID of the response becomes $NODE, the first ID $ID. With api-until REGEXP
// before the method it repeats the call until the response matches.
func call(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: api method path [body]")
	}
	answer := ask(ts, args)
	if id := nodeID.FindStringSubmatch(answer); id != nil {
		ts.Setenv("NODE", id[1])
	}
	if id := anyID.FindStringSubmatch(answer); id != nil {
		ts.Setenv("ID", id[1])
	}
	_, err := io.WriteString(ts.Stdout(), answer)
	ts.Check(err)
}

var anyID = regexp.MustCompile(`"id":"([^"]+)"`)

var nodeID = regexp.MustCompile(`"node_id":"([^"]+)"`)

func callUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: api-until regexp method path [body]")
	}
	want, last := regexp.MustCompile(args[0]), ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = ask(ts, args[1:]); want.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%v never said %s; last:\n%s", args[1:], args[0], last)
}

func ask(ts *testscript.TestScript, args []string) string {
	body := strings.Join(args[2:], "")
	req, err := http.NewRequestWithContext(context.Background(), args[0], ts.Getenv("CONTROLLER")+args[1],
		strings.NewReader(body))
	ts.Check(err)
	if root := ts.Getenv("ROOT"); root != "" {
		req.SetBasicAuth("root", root)
	}
	caller := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	resp, err := caller.Do(req)
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	return string(answer)
}

// random writes a file of a number of bytes that do not compress: random FILE BYTES
func random(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: random file bytes")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// keyFile writes the private key of an API key: keyfile FILE
func keyFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keyfile file")
	}
	key, err := rsa.GenerateKey(cryptorand.Reader, 2048)
	ts.Check(err)
	text := base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PrivateKey(key))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text+"\n"), 0o600))
}

// apiKey creates an API key at the controller of the script: apikey ID FILE
func apiKey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: apikey id file")
	}
	c, err := client.NewController(ts.Getenv("CONTROLLER"),
		client.Options{Credentials: client.RootToken(ts.Getenv("ROOT")), TLS: client.TLS{SkipVerify: true}})
	ts.Check(err)
	made, err := c.CreateKey(context.Background(), api.NewKey{ID: args[0], TTL: 3600, Groups: []string{"scripts"}})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(made.Reveal()+"\n"), 0o600))
}
