"""Ledgers of older formats are brought to the present one, with every entry and digest as it was."""

import base64
import sqlite3
import time
import zlib
from contextlib import closing

import pytest

from ostraka import Budget, GNMax, Ledger
from ostraka.core.ledger import sqlite
from ostraka.core.ledger import sqlite as locking
from ostraka.ledger import ChargeRequest, LedgerError
from tests.core.ledger.conftest import tamper

# A file of format 2, as it was written then: Ledger(path, budget=Budget(epsilon=2.0, delta=1e-5)), a grant
# of 1.0 to ann, three uses of GNMax(sigma=40.0) under the key "first", and the question aa of ann under "k".
HEAD_THEN = "1b0219583cc006e110a5089eb21fafc992ca7c2d984052e3e80fb03e047356c2"
FORMAT_2 = (
    "c-rlp3v?9K8G!%UNwS-S&4UD&5QLG3*(C`ig^E>!<gt0kvLTzzLkN$}?y#(EcEj!lf(J{J@KSmtf|Q3SJ+(#5ISN=6v5IZ*S"
    "!*fS3f5CGYE?jaSm20O?LTw>4ZC4Cws4MZVg9q3Z|>ZG?)~Tf_x|_h&L-7WCRacd=6Zciwtz4mVnC&W$$|g?JpK%X3zC69F("
    "GLVe^k<m*B|gfWZ_|~or{%j<Uf_tDg0ObIsP<DD58iW->W32;~^;p5Alh3P{(Sefy|!-{3xP`B3JnM=i-1<YqY9KAAa%Fst@"
    "L!X5)V?;71Wf6#1`9XFjKaaT#kGI_H#`r`lTeewVY!RxlxNY@VUf=5~7nOz-ns8P5>U5x*dQN&F}A8zM}m<-5ex1bO@)2mC0"
    "ah$2_6r1RtAFN!GA{Lk|ffq#WxicmxmMZQ}~`DDmQOOB6E)2Nd;0F!;5&F2(t9?yKAchRk{Po4eITlW=q#bl~7>TmgNTu;ic"
    "G!H#7e8+2Rf4?Mm<7CSRpCs>`6yvY$E>&SUT3tMc<w)gHIdfe;e}I=tdS&M${yAxmBd;DS9r2^5Pu=@h{n5c0o!8f#9`M;F&"
    "CAR74?T7;wqx+oiCi-1(f~ACjRt?W2b0rh^90bGt$)gV=*b1E0&mt<emm&n(<!5qhrVIcy;_hO5X6kYnro%`UnR}|XO$IzB8"
    "ptW5+9S6%t;Z7Pl(a#I620sr1?J<GJsE4%}{BeP2S~~WNxflH(bZHjdXb&Vyoy0_!iHeFD{l(;)*TCLaR}zF;`U87=;RRiLq"
    "YjRS_!9EFtJ^cDuL56UY(pvO%aTH(HF+sZdcZm@BP<xyEGbh>20_bUJRiGhl0Ui}H=~A(kq!78aR|!2%Nm6u-Ct>$Donj22;"
    "<rDAHK<#u6;@%9`!b3WQDSdI18-Wu3-G9^-$WRY~4rJ8*%yVzU4#aN0)n~ROrEQ9H^_(gxON_b(-K5sy@2mFyL^1GT^+_r$r"
    ">xpu+*z9+?F&CfQ)YpFhe9<8knJSAY?eQ-XeZg|rHM^}@zLjbV*aBk69S)aM^atb%y=5mDglem$qS#u+$LX?loLBa?{G_v+M"
    "4XH~E`O7pj3IY0XZO*NT+Z4}-+Rr_c7saxZ2J`1vvR(C;KMvi_sJ%@9MK(np|S`q+v0IWbgkFt5PkmeXQsCDMs15W7pK-`WN"
    ";n1vf+&_4yPDkM^%{V>{`FJ3&rKe;wge2a|?ug!*{ybA-V&$i2irjnggzd;zd0tSVM?{pwG*}%BVKKX!nVITBr9}+3){f0)7"
    "-xM3JjTV)-Pli`ViSAr8g>KT7qoY7SQm&thUsB>gsRqB=7xL(?V(d@iR`^syOec1yDZ=NXm=Mn_9UnG~YJG=w5!X(i78HPcE"
    "Y9h@;}3M(>}VaTdBnvBI(!BSXJZPXVQRa&e$LKbPb{DQ5yS@bw^y&m`CEW^!$(OlA&kswFucC8$xnJPPK!=f}5!lE==M??zL"
    "Av3+KL}AzGvn`G^fAl+>wyWdisjs6+wk_Zd*xd4AK$vCnrHF?02KOjdMPJN>uK_M=HNwohuz(0{Ej_a)Xo;cs(Q|~l3Tt^~4"
    "Z5<juA;=DQR{MX8JQZgjJ!~>oK6f|S@cy2Sxw@)FSv*d$-iZikk_DA>qcTNiJ`Sf%OCkPAyNhM;wW<2a#qL^)fdM~pBPfQyd"
    "0BHHPIKtY|R$39G23-YFK7SHA11egsm*`iEzNp`#z$8H2;Tvt49$<6uD|d8UKnXqKtn<6j9{r6Rk4-6;b4>9{;g$5LC}|pL3"
    "0Hke>==msZm1|B)wZ(<X=SQ?j=-vmK&a4A9G*KKqnm8o_<a5~In;_9^K#Pe1#Vq!D?aQkxXf9=0pmpFPp`O)t})a;<Dn`;72"
    "?T&CIIJ}%P;+EZb!Hd?G9`?z)GMzdh7uc)?G3wkmuUnsRyP7Tqp1YhMA2xep5Soz#=$y>nM0TH*PnIrpqlxVKL%q{7>6xOua"
    ";jU(y{kb|?(~=|mX<DXXxYXXDm8bttfp1YA;}+q`b$x~t-vX~+A+fGaldjGjt<$v4Cik$n*ld`|=Y5<Lnt$;yWG}A!X?La&v"
    "Dw?3(_~YYk0VoP!&p|7&-<7XntyROVM9vpCDN#pzaYUjmV>>;?zOo^zg^TfN#Fkz7Z`GcJcE!O>_s#VD=kraS#Jf>#x=csU?"
    "Vt~k~XiUFH*3p^7lQkG`*Av?rF<9|3>-p#yFKOpNDRY8~W|)tenV$Q!_B!`>aV>B#7SR(IN$_=~7KejbsYzXwglH))6nq6gK"
    "}qC5`_s)o|{9JpDfy$PF2C`*o<P{p2@QG&<z-KJ6EpfAQ#H@45PkvAqhBW-qySMjR9U_Ec78l<qM&yn8V7Sx=1qc+q+)y~ev"
    "lQ*@C`VLdUrDbafBWtmcbjciJLc=Tq9(W7@Xr?cSP8!}yvej}#K(I;Taw;L`o`nPEYMVg411EW7mGzVYKL<GHm<FA@b6FxD9"
    "7)y*Js)-t60&xH_iI_r6B@QH}5z~o-h}RHx#KFWN#G%AtM1go6aRhNBaTIYh@p@twQBNF0%pr~?<`MIWKOl}LP9Xk}cmr`F@"
    "kZiJ#9N4yh?9wh#3Eubv4m(OmJ-W|<;2^FCZd@*jaWsr5UYt+VhypDSVycUPA4`HXA$QRZNx^Ro#-Hn#JNN#aUSswqMPU;HW"
    "L>ReMCPoKx`o{BrYPh67M7~A^w>76Ji^&o!CKKMqEx@L0m~(MZAajQ{uhEPU3yUwZwJA`-$s`KO=4+ZX}*sx?NnSUWjLVQ^$"
    "?&kb2_ZpDgN>Jn0@X=RxH8@iljKA)kD0`sUqI`ZvPv7m-spZ+Y{8)N*I{oqQL0a`kkr^p7`AAMeRIFM0H>Mw2|UIe<-XADo|"
    "tyn9*JY5}=xZf#dC(wS28+D*vwuraO%dGzF#A}=y?P0C$&BU5(0_uRwC5zpSF+Kc>T)$^r?kxBMJ_k51Lar=qa2dDske&}ps"
    "7IMq_LluR{<bqGu%|K?qxVfhVsT(A=b|Gs5N8*kkQ$5Yw(s+QLp7Ay1$m6i-%O%K-=Wc&+7jpml+gu+ZU0-*P$&A6#vs!<o6"
    "1ibW?n}#%t8(sqbPsZFZs*by$h+f9TkB)d3r8Po=|-yKvfs{$!%_QD!juij`fJT6I5qb67xsSRMxN-X)Eq{>*!Z{miZwWjwr"
    ";iVK)&xgmz5chy-zs2V<qyd31y{ckXh5ppZ;S4z#{`qzOF=o9ghodtsDSw>rrQ|6Bk)S*WbIeJPD)KskSGwld-+?ZeEz00`S"
    "Va^TwP<zO!!z_hBmfF!`|w2QVVr&u;zo@6rHvA3O$6r2~AsC$3=IH5e^he{p)-V1W6$`}gl20`TYqo^9_81$beL^W%ZT0ScC"
    "En>h=AhZ}X{hZ%cEVsz>*tI59};LrQd47=6<u=AAVfv2;v{3UC?m_8O@`_WT%>U@BIG&)K>H(*rzIH~sCo3S_l<+E|q3jv;c"
    "X+`&eQtaj1A8-_7Z)sg|&bO-y;G5!|vqsfnG`{0dLT3Z|P37Bp#)i@Qh5WB)InlqX_aE5jM*sA@clbIV);Dzby!V#?G>tkHy"
    "J01^@4D_ig=+zR*<6rt=wWQHvYtEB9|zboZ29r3X8`t{)i<o^26*ESk^mfjSW?9HN3F6RfKRKQK}~>jlG<5-#6yw-2g9Y?hj"
    "B1ryd)fyOU0IPFcY=(4IC_xs%z$8g`~EegUy>H;i!I&>gA|Dj_ToH(BqPV3MNUn7pTBFR}vL;O2w{Gk=-h?Peu0dWCu_6^He"
    "WS_3=~>A6(f^exI2O!9UZTF=K?&*5dcOY@QK0!ic=q{IL@z+QfW1*qd|n^DrZS=1l2Jd#1v=>i=vh{V&p0S;Y"
)


@pytest.fixture
def old(tmp_path):
    """The file."""
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(zlib.decompress(base64.b85decode(FORMAT_2)))
    return path


def format_of(path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]


def test_a_ledger_of_format_2_opens_with_its_entries_its_head_and_no_times(old):
    assert format_of(old) == 2
    with Ledger(old) as ledger:
        assert ledger.head == HEAD_THEN
        assert [entry.at for entry in ledger.entries()] == [None] * 3
        assert ledger.charge(GNMax(sigma=40.0), uses=3, unit="row", simulation=False, key="first") == 2
    assert format_of(old) == sqlite.VERSION == 5


def test_it_goes_on_with_times_and_verifies_across_the_change(old):
    now = time.time()
    with Ledger(old) as ledger:
        question = ChargeRequest(
            account="ann",
            key="later",
            digest="bb",
            cost=GNMax(sigma=40.0),
            reserve=GNMax(sigma=40.0),
            answer=1,
        )
        ledger.charge_each([question])
        ledger.verify()
    with Ledger(old) as ledger:
        *_, last = ledger.entries()
        assert now - 1 <= last.at <= time.time()
        assert ledger.count() == 4


def test_an_upgraded_file_has_the_tables_of_a_new_one(old, tmp_path):
    Ledger(old).close()
    Ledger(tmp_path / "new.sqlite", budget=Budget(epsilon=2.0, delta=1e-5)).close()
    found = []
    for path in (old, tmp_path / "new.sqlite"):
        with closing(sqlite3.connect(path)) as db:
            found.append(db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall())
    assert found[0] == found[1]


def test_a_file_in_use_is_not_upgraded_beneath_its_user(old):
    with locking.OPENING:
        user = locking.FileLock(str(old))
        user.take(alone=False)
    with pytest.raises(LedgerError, match="has an older format, and is in use"):
        Ledger(old)
    user.close()
    assert format_of(old) == 2
    Ledger(old).close()


def test_an_upgrade_that_breaks_off_changes_nothing(old, monkeypatch):
    monkeypatch.setitem(sqlite.UPGRADES, 2, "ALTER TABLE entry ADD COLUMN at nonsense")
    with pytest.raises(LedgerError, match="could not be used"):
        Ledger(old)
    monkeypatch.undo()
    assert format_of(old) == 2
    with Ledger(old) as ledger:
        assert ledger.head == HEAD_THEN


def test_the_time_of_an_entry_is_covered_by_its_digest(old):
    with Ledger(old) as ledger:
        ledger.grant("bob", budget_epsilon=1.0)
    tamper(old, "UPDATE entry SET at = at - 1 WHERE seq = 4")
    with pytest.raises(LedgerError, match="entry 4: its fields do not match"):
        Ledger(old)
