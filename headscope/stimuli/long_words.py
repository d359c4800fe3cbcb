"""Words that vocabularies of some 50,000 tokens spell with several: rare ones of GUM's texts."""

from __future__ import annotations

_WORDS = """
abhorrent abstained accuracies acoustically acquiesce adduced admiral affliction ageless
agglomeration alludes amalgamation amassed ambiance ameliorate amnesty anchorage antifreeze
aphorisms appertaining appreciably aqueducts arbitrariness archosaur ascendance ascetics
auditioned autograph aversions awarding backdated badgers balconies banishes banquet barbeque
bartender bastion battled beefing beeline benefactor berthage bestseller bettering biasing
bicycling bigotry biogeochemistry biographers blackberry blooded blouses boldness bolstered
bombarding bookkeeping botanicals boulevards bounced boutiques breezes brigadier bulwark busiest
businesslike buttery buzzwords bypasses cabbies calligraphic calmest campaigner campsites
captained carbonyl carburetor catacombs categorically caterers catholic cayenne cenobitic cenotaph
censuses centerpiece channelled charlatans chartering chattels chirping chocked citadel claimants
clinched codices coffeehouses colonials columnist comedian commandant componential compulsion
concede condemning conflating congested congratulated conjectures conjointly connotes considerate
coolest coquette corneas cosplay costumed countdown coursing covariation cradled creational
crucially cruises crunchers crystallize currant curving customarily damning deadbolted deceiving
decouple defectors deferentially definable delinquencies demagogues demotion deputies desecrated
desirability destabilizing deviating devolving diachronic digress dilapidation disarmament
disbanded disclosures disdain disgruntled disjoint disliked disquiet dissecting distally
distilleries distractedly divorcing doorbell downwelling draconian dramatization drifters dungeon
dwarfed dwindled dysphoria ecumenical edifices educative eggshells elegies emeritus encampment
endowment engendered engulfed enjambed enumerating enviably eremites errands erythema eternally
ethnocentric excision expropriation exterminator extremism exuberant facelift fascinates filigree
finalizing fixations florescent foisted forbearance forelimb foreseeing forgave fragmentary
functionalism gallivanting gangster gargling gentrification glamorous goalkeeper gooseberry
gourmet grained grammarian gratified gridlock guarantor guidebook gumball hackneyed hagiography
handcuffed harbouring harking harmonize hastened hastily headset heartbreaks heatwaves hilltops
hindlimb hindsight holiest homeopath honeydew hooligans hopefuls horsetail housewife humanists
humored hundredths hunkering impeached inadequacies inapplicable indignity indiscriminately
indulged industrialists infielder inflating infringing inhospitable innovating insanely insignia
involvements irrigate jellies jeopardised joinery jokingly kindred kinsman lakefront laureate
leadoff legalizing legislate lexicographic limelight linchpin locomotory loudspeaker luminescence
mainstreamed maladies malformed malnourished maniacs mansions marvelled meander medalist medicate
meetups meritocratically mesmerized metabolically microcosm midwife mightily mimicked minarets
mindedness ministered miscalculation misinterpretation misrepresentations mistook mistresses
mobiles monetize moniker monocot mortgaging mortification moveable muddying multiethnic
musculature nauseous needlework negates negligent nematocysts neoformalism neurocognition
newsgroup nightclub nonmaterial nostalgic obliterated obsidian oligarchic onerous ontogeny
opportune oppress orienting ornithology outcrops outfielder outlandish overcast overdone palatial
panorama pantheons parenthetically peaking pectoral penalizing penance penitentiary penultimate
peritonitis permeated pernicious persisting perturbation philologists phonology pilgrimages
pillowcases piloting pinpointed pizzerias placate plagiarized playfully playoffs ploughing
podcasters policeman polytheism popularize postacetabular postseason pragmatics prayerful
predicated prequel prettier professionalized promulgate pseudoscience purveyed quackery quickest
quitter radiology raffles ragamuffin raining rampart readership reaffirms realisation reassignment
reciprocate reckoning recollected recreating redefined rediscover redownload reemerged refreshment
refusals regalia regionally regress reinterred relatedness remilitarization remodel replete
repositioning representationalism reprimand repugnant repurposed restaurateur restocked retaliated
retroactive reunify rightfully ritualised roadshows rosters royalist sadistically salesman
saltiness sandals sarcasm schoolboy scripted seafaring sectional senatorial senselessly sentinel
sepulchres serviced shatter shavings shopkeepers showdown showgirl shuffling shunned shutters
sightseeing singled sixties skirmish skytrain slanted sleeper sleeved smacked smugglers sneakers
snorkeling snowshoe solemnity solstices songwriter sophomore sorority spaghetti spectrophotometer
spinoff spirited splendour spoilers sprawled squashed staccato staggered staircases stampedes
starchy stateless staunch steward stipulation stonework stoning storefronts stouter stretchy
stylers stylists subcontractor subdivide subdomains submersion submicron subpoenaed subscribed
subsection subtlety sulphuric sunbathing sunshield suprematist swamped sweatshirts syntheses
tabletop tapering tarpaulin tasteful teammate technetium telegram televised tethered thanking
thinned thrifting thwarted tombstone totalitarianism touristic tracers traffickers tragically
trailhead tranquillity transcriptome treasurer tremble trooper twenties tycoons typifies
typologies unanticipated unbeaten uncredited uncrowded uncultured undated undiluted undisclosed
uneducated unending unfaithful unimpeded uninhabited unitary universals unjustified unknowns
unlocked unobstructed unpalatable unproven unreachable unremarked unskilled unsolved unsurprising
untamed untenable unthinking unwieldy upheavals upstage urbanized utterance vaguely venality
verticalization vexation viewership vindication vitalized vividness vlogging vocalist waivers
warlords warping warplanes warship webcomic whittle wintertime withhold witting wordlessly
wounding zeitgeist zooming
"""
LONG_WORDS = tuple(_WORDS.split())
"""Each stands once in the texts, and no two begin with the same five letters."""
