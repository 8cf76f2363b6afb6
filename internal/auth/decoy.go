package auth

import (
	"crypto/rsa"
	"math/big"
	"time"
)

// decoyPurpose is the purpose of the decoy keys of unknown IDs.
const decoyPurpose Purpose = "tap-decoy"

// decoyKey returns a public key for an unknown ID, always the same while the signing key is the same,
// on every replica: a hand for an unknown ID is answered like any other, so that it does not reveal
// which IDs exist. Its private key is unknown.
func (t *TAP) decoyKey(id string) *rsa.PublicKey {
	key := t.sessions.signer.ring.Load().signingKey(time.Now())
	modulus := make([]byte, 0, generatedKeyBits/8)
	for i := byte(0); len(modulus) < generatedKeyBits/8; i++ {
		mac := key.sign(decoyPurpose, []byte{i}, id)
		modulus = append(modulus, mac[:]...)
	}
	modulus[0] |= 0xC0 // as large as the product of two primes of half the length
	modulus[len(modulus)-1] |= 1
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537}
}
