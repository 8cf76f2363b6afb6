package buildyard

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// TestNoSecretInLogs: whatever is done with credentials, in the right place and in wrong ones, at
// the most talkative level. test/authmatrix and test/contract do the same with all of the API.
func TestNoSecretInLogs(t *testing.T) {
	logs := t.TempDir()
	s, stop := startController(t, t.TempDir(), true, withAccess(map[string]string{
		"log-dir": logs, "log-level": "debug", "enable-event-logging": "true",
		"enable-controller-authorization": "true", "enable-registry-authorization": "true",
	}))
	root := asRoot(t, s.URL())
	made, err := root.CreateKey(t.Context(), api.NewKey{ID: "ci", TTL: 3600, Groups: []string{"dev"}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := client.ParseAPIKey("ci", made.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	as, err := client.NewController(s.URL(), client.Options{Credentials: key})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := as.Authorize(r); err != nil {
		t.Fatal(err)
	}
	session := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	node, err := s.controller.Nodes.Join(t.Context(),
		api.JoinRequest{Protocol: api.LinkProtocol, Token: s.JoinToken(), Name: "n", Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	basic := base64.StdEncoding.EncodeToString([]byte("root:" + rootToken))
	secrets := []string{
		rootToken, url.QueryEscape(rootToken), basic, made.Reveal(), session, node.Credential,
		s.JoinToken(),
	}
	a := asks{t: t}
	for _, address := range []string{s.URL(), s.RegistryURL()} {
		for _, secret := range secrets {
			for _, header := range []string{"Basic " + secret, "Bearer " + secret, secret} {
				a.code("GET", address+"/api/v1/vm", "Authorization", strings.TrimSpace(header))
			}
			a.code("GET", address+"/livez", "Cookie",
				"buildyard_session="+base64.RawURLEncoding.EncodeToString([]byte(secret)))
			for _, path := range []string{
				"/api/v1/vm?id=", "/registry/v2/vm?id=", "/no/such/",
				"/admin/api/v1/permission/group/", "/tap/v1/hand?id=",
			} {
				for _, method := range []string{"GET", "POST", "DELETE"} {
					a.code(method, address+path+url.QueryEscape(secret), "Authorization", "Basic "+basic)
				}
			}
		}
	}
	stop()
	read := 0
	err = filepath.WalkDir(logs, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		read += len(text)
		for i, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds secret %d", filepath.Base(path), i)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 10_000 {
		t.Errorf("the logs have %d bytes", read)
	}
}
