package auth_test

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// A service puts the parts together once; a client goes from its key to an answer.
func Example() {
	ctx := context.Background()
	// The service: its stores, here in memory, and what it makes of them.
	keys := auth.NewAPIKeys(auth.NewKeyTable(nil, nil))
	sessions := auth.NewSessions(keys, auth.NewSigner(auth.NewKeyRing(time.Now())), auth.DefaultSessionTTL)
	tap := auth.NewTAP(sessions, &auth.MemoryNonces{})
	root, _ := auth.NewRootToken("a long root token")
	who := &auth.Authenticator{Root: root, Sessions: sessions}
	grants, _ := auth.Grants{}.SetGroup(farm.ServiceController, "builders", []farm.Permission{"start_vm"})
	judge := auth.NewAuthorizer(auth.Policy{
		Service: farm.ServiceController, Tier: farm.TierEnterprisePlus, Authorization: true,
	}, auth.NewGrantTable(grants, nil))

	// The root user makes a key, and passes its private half to a client.
	private, _ := keys.Create(ctx, auth.NewAPIKey{ID: "ci", TTL: 3600, Groups: []string{"builders"}})

	// The client shakes hands, and shows its session from then on.
	text, _ := tap.Hand("ci")
	answer, _ := tap.Shake(ctx, api.ShakeRequest{ID: "ci", Secret: decrypt(private.Reveal(), text)}, "192.0.2.1")
	session, _ := json.Marshal(answer.Data)
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/vm", nil)
	request.Header.Set("Authorization", "Bearer "+base64.StdEncoding.EncodeToString(session))

	// The service identifies the caller, and checks the permission.
	caller, err := who.Identify(request)
	fmt.Println(caller.Name, caller.Groups, caller.Method, err)
	fmt.Println(judge.Rules().Allows(caller, "start_vm"), judge.Rules().Allows(caller, "delete_node"))
	fmt.Println(auth.Forbidden("delete_node"))
	// Output:
	// ci [builders] key <nil>
	// true false
	// You need the permission delete_node
}

// decrypt is the client's part.
func decrypt(private, text string) string {
	der, _ := base64.StdEncoding.DecodeString(private)
	key, _ := x509.ParsePKCS1PrivateKey(der)
	raw, _ := base64.StdEncoding.DecodeString(text)
	secret, _ := rsa.DecryptOAEP(sha256.New(), nil, key, raw, nil)
	return string(secret)
}
