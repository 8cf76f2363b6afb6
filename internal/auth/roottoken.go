package auth

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of the root token and of a credential in a header.
const (
	MinRootToken = 10       // characters
	MaxRootToken = 1024     // bytes
	maxBasic     = 2 * 1024 // bytes of the base64 text
)

// RootToken is the root user's token.
type RootToken struct{ token Secret }

// NewRootToken returns the root token of the settings.
func NewRootToken(token string) (*RootToken, error) {
	if n := utf8.RuneCountInString(token); n < MinRootToken {
		return nil, fmt.Errorf("the root token has %d characters: want at least %d", n, MinRootToken)
	}
	if len(token) > MaxRootToken {
		return nil, fmt.Errorf("the root token has %d bytes: want at most %d", len(token), MaxRootToken)
	}
	return &RootToken{NewSecret(token)}, nil
}

var (
	errBasicForm  = deniedError("the Basic credentials are malformed")
	errBasicUser  = deniedError("the user of the Basic credentials is not root")
	errBasicToken = deniedError("the root token is wrong")
)

// Verify verifies Basic credentials, the base64 text of user:token. The user is root or empty.
func (r *RootToken) Verify(basic string) (Identity, error) {
	user, token, err := parseBasic(basic)
	if err != nil {
		return Identity{}, err
	}
	who, err := r.VerifyToken(token) // for every user name
	if user != "" && user != RootName {
		return Identity{}, errBasicUser
	}
	return who, err
}

// VerifyToken verifies a token without a user name, as it is typed into a page.
func (r *RootToken) VerifyToken(token string) (Identity, error) {
	if len(token) > MaxRootToken || !r.token.Equal(token) {
		return Identity{}, errBasicToken
	}
	return root, nil
}

// parseBasic parses Basic credentials. A token may contain anything, colons too.
func parseBasic(basic string) (user, token string, err error) {
	if len(basic) > maxBasic {
		return "", "", errBasicForm
	}
	raw, err := decodeBase64(basic)
	if err != nil {
		return "", "", errBasicForm
	}
	user, token, ok := strings.Cut(string(raw), ":")
	if !ok {
		return "", "", errBasicForm
	}
	return user, token, nil
}

// decodeBase64 reads base64 in either alphabet, padded or not; line ends in it mean nothing.
func decodeBase64(text string) ([]byte, error) {
	coding := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		coding = base64.RawURLEncoding
	}
	return coding.DecodeString(strings.TrimRight(text, "=\r\n"))
}
