package auth

import (
	"crypto/rsa"
	"math/big"
	"time"
)

// forDecoys is the purpose of the decoy keys of unknown IDs.
const forDecoys Purpose = "tap-decoy"

// decoy returns a public key for an unknown ID, always the same while the signing key is the same,
// on every replica: a hand for an unknown ID is answered like any other, so that it does not reveal
// which IDs exist. Its private key is unknown.
func (t *TAP) decoy(id string) *rsa.PublicKey {
	key := t.sessions.signer.ring.Load().signing(time.Now())
	modulus := make([]byte, 0, madeKeyBits/8)
	for i := byte(0); len(modulus) < madeKeyBits/8; i++ {
		mac := key.mac(forDecoys, []byte{i}, id)
		modulus = append(modulus, mac[:]...)
	}
	modulus[0] |= 0xC0 // as large as the product of two primes of half the length
	modulus[len(modulus)-1] |= 1
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537}
}
