// Certificates and tokens for the clusters of tests and for the trial cluster, so that no other program is needed to make
// them.
//
//	keys authority FOLDER                       ca.crt and ca.key, and sa.key, which signs tokens
//	keys certificate FOLDER NAME USER [GROUP]   NAME.crt and NAME.key, for a client and for a server on loopback
//	keys certificate -hosts=HOST,... FOLDER ... the server has these names and addresses, too
//	keys token FOLDER < claims                  a JSON Web Token with these claims, as sa.key signs it
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Longer than people keep a trial cluster.
const lifetime = 30 * 24 * time.Hour

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "authority":
		return makeAuthority(arguments[1])
	case len(arguments) >= 4 && arguments[0] == "certificate":
		flags := flag.NewFlagSet("certificate", flag.ContinueOnError)
		hosts := flags.String("hosts", "", "names and addresses of the server, separated by commas")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		if words := flags.Args(); len(words) >= 3 {
			return makeCertificate(words[0], words[1], words[2], words[3:], strings.FieldsFunc(*hosts, isComma))
		}
	case len(arguments) == 2 && arguments[0] == "token":
		return signToken(arguments[1])
	}
	return fmt.Errorf("unknown arguments %q", arguments)
}

func makeAuthority(folder string) error {
	key, err := newKey(filepath.Join(folder, "ca.key"))
	if err != nil {
		return err
	}
	template := newTemplate("tests", nil)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := sign(filepath.Join(folder, "ca.crt"), template, template, key, key); err != nil {
		return err
	}
	_, err = newKey(filepath.Join(folder, "sa.key"))
	return err
}

func isComma(character rune) bool {
	return character == ','
}

func makeCertificate(folder, name, user string, groups, hosts []string) error {
	authority, authorityKey, err := readAuthority(folder)
	if err != nil {
		return err
	}
	key, err := newKey(filepath.Join(folder, name+".key"))
	if err != nil {
		return err
	}
	template := newTemplate(user, groups)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(filepath.Join(folder, name+".crt"), template, authority, key, authorityKey)
}

func newTemplate(user string, groups []string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(lifetime),
	}
}

func sign(path string, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	return write(path, "CERTIFICATE", der)
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, write(path, "EC PRIVATE KEY", der)
}

func write(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func readAuthority(folder string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	der, err := read(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, nil, err
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	key, err := readKey(filepath.Join(folder, "ca.key"))
	return authority, key, err
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := read(path)
	if err != nil {
		return nil, err
	}
	return x509.ParseECPrivateKey(der)
}

func read(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM", path)
	}
	return block.Bytes, nil
}

// signToken needs no key's name: an API server that knows one key tries that.
func signToken(folder string) error {
	key, err := readKey(filepath.Join(folder, "sa.key"))
	if err != nil {
		return err
	}
	claims, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	_, err = fmt.Println(signed + "." + encode(signature))
	return err
}
